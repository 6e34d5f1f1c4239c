// Reads Ethernet, IP and GRE at the front of a frame. Combinational, in two steps of a clock each: where the headers are, by the
// frame's first beat as it comes in, and what is in them, by the whole window.
//
// The window holds the frame's first octets; what stands behind the end of a shorter frame means nothing. Whether the frame has
// what is read is for gre_match to say.

`default_nettype none

module gre_parse
    import net_pkg::*;
    import gre_pkg::*;
#(
    // Octets of the window.
    parameter int unsigned WINDOW = 64
) (
    // The first octets of the frame that is to be read in the next clock.
    input  wire logic [31:0][7:0]       front,
    output wire layout_t                layout_next,

    input  wire logic [WINDOW-1:0][7:0] window,
    input  wire layout_t                layout,
    output wire fields_t                fields
);
    // Words of four octets behind an Ethernet header without tags, and what is left.
    localparam int unsigned WORDS = (WINDOW - 14) / 4;
    localparam int unsigned PAST = WINDOW - 14 - 4 * WORDS;
    // IPv4 without tags and options ends here.
    localparam int unsigned GRE_MIN = 5;
    localparam int unsigned GRE_MAX = WORDS - 1 < SUM_WORDS ? WORDS - 1 : SUM_WORDS;
    // Bits of a place from GRE_MIN to GRE_MAX that tell it from the others.
    localparam int unsigned GRE_W = $clog2(GRE_MAX - GRE_MIN + 1);
    localparam int unsigned WORDS_ALL = 24;

    initial begin
        assert (WINDOW >= 64 && PAST == 2);
    end

    // Where the headers are.
    function automatic logic [15:0] half(input logic [31:0][7:0] octets, input int unsigned at);
        return {octets[at], octets[at+1]};
    endfunction

    wire logic [4:0] vlan;
    for (genvar tag = 0; tag < 5; tag++) begin : g_vlan
        assign vlan[tag] = is_vlan(half(front, 12 + 4 * tag));
    end
    wire logic [1:0] tags_next = !vlan[0] ? 2'd0 : !vlan[1] ? 2'd1 : 2'd2;
    wire logic [15:0] ethertype = half(front, 12 + 4 * int'(tags_next));
    // Version and length of IPv4's header.
    wire logic [7:0] opening = front[14+4*int'(tags_next)];
    wire logic [3:0] words_next = opening[5] ? 4'd10 : opening[3:0];
    assign layout_next = '{
        tags: tags_next,
        // Of a frame with five nobody reads more: it is no tunnel packet.
        many_tags: &vlan[2:0] && vlan[4:3] != 2'b11,
        type_v4: ethertype == TYPE_IPV4 && opening[7:4] == 4'd4,
        type_v6: ethertype == TYPE_IPV6 && opening[7:4] == 4'd6,
        is_six: opening[5],
        ip_words: words_next,
        gre_at: {1'b0, words_next} + {3'd0, tags_next}
    };
    wire logic unused_front = &{1'b0, front};

    // Words behind an Ethernet header without tags; beyond the window there is nothing.
    wire logic [WORDS_ALL-1:0][31:0] raw;
    for (genvar at = 0; at < WORDS_ALL; at++) begin : g_raw
        for (genvar octet = 0; octet < 4; octet++) begin : g_octet
            if (14 + 4 * at + octet < WINDOW) begin : g_in
                assign raw[at][8*(3-octet)+:8] = window[14+4*at+octet];
            end else begin : g_out
                assign raw[at][8*(3-octet)+:8] = 8'd0;
            end
        end
    end

    // The fixed part of the IP header.
    wire logic [10:0][31:0] ip;
    for (genvar at = 0; at < 11; at++) begin : g_ip
        assign ip[at] = layout.tags == 2'd0 ? raw[at] : layout.tags == 2'd1 ? raw[at+1] : raw[at+2];
    end

    // IPv4 (RFC 791), IPv6 (RFC 8200).
    wire logic [15:0] total_v4 = ip[0][15:0];
    wire logic [15:0] payload_v6 = ip[1][31:16];
    wire logic [7:0] next_v6 = ip[1][15:8];
    // Behind one extension header anything but GRE or another of them is no tunnel packet.
    wire logic [7:0] after_extension = ip[10][31:24];
    // Less by more than the value is a borrow.
    wire logic [16:0] payload_v4 = {1'b0, total_v4} - {11'd0, layout.ip_words, 2'b00};
    wire logic [6:0] behind_link = 7'd14 + {3'd0, layout.tags, 2'b00} + (layout.is_six ? 7'd40 : 7'd0);
    wire logic [15:0] said = layout.is_six ? payload_v6 : total_v4;
    wire logic [COUNT_W-1:0] packet_end = COUNT_W'(said) + COUNT_W'(behind_link);
    wire logic [15:0] payload_len = layout.is_six ? payload_v6 : payload_v4[15:0];

    // Header checksum: ten words of 16 bits, and the options; between the tags and GRE.
    wire logic [31:0] before_gre = ~(32'hffff_ffff << layout.gre_at);
    wire logic [6*SUM_PARTS-1:0][16:0] summed;
    for (genvar at = 0; at < 6 * SUM_PARTS; at++) begin : g_sum
        if (at < GRE_MAX) begin : g_in
            wire logic is_tag = at < 2 && layout.tags > 2'(at);
            wire logic is_in = !is_tag && (at < GRE_MIN || before_gre[at]);
            wire logic [16:0] both;
            sum_tree #(.NUMBERS(2), .WIDTH(16)) tree (.numbers(raw[at]), .sum(both));
            assign summed[at] = is_in ? both : '0;
        end else begin : g_out
            assign summed[at] = '0;
        end
    end
    wire logic [SUM_PARTS-1:0][19:0] sums;
    for (genvar part = 0; part < SUM_PARTS; part++) begin : g_part
        wire logic [5:0][16:0] numbers;
        for (genvar at = 0; at < 6; at++) begin : g_word
            assign numbers[at] = summed[part+SUM_PARTS*at];
        end
        sum_tree #(.NUMBERS(6), .WIDTH(17)) tree (.numbers(numbers), .sum(sums[part]));
    end

    // GRE (RFC 2784, RFC 2890).
    logic [2**GRE_W-1:0][31:0] gre_by_place;
    always_comb begin
        gre_by_place = '0;
        for (int unsigned at = GRE_MIN; at <= GRE_MAX; at++) gre_by_place[at%(2**GRE_W)] = raw[at];
    end
    wire logic [31:0] gre = gre_by_place[layout.gre_at[GRE_W-1:0]];
    // Checksum, key and sequence number take a word each.
    wire logic [2:0] gre_words = 3'd1 + {2'd0, gre[31]} + {2'd0, gre[29]} + {2'd0, gre[28]};
    wire logic unused_words = &{1'b0, window, gre, ip, raw, before_gre};

    assign fields = '{
        layout: layout,
        is_v4: layout.type_v4,
        is_v6: layout.type_v6,
        next_gre: (layout.is_six ? next_v6 : ip[2][23:16]) == PROTOCOL_GRE,
        extended: is_extension(next_v6) && (is_extension(after_extension) || after_extension == PROTOCOL_GRE),
        no_payload: layout.is_six ? payload_v6 == 16'd0 : layout.ip_words < 4'd5 || payload_v4[16],
        fragment: !layout.is_six && ip[1][13:0] != 14'd0,
        tos: layout.is_six ? ip[0][27:20] : ip[0][23:16],
        hops: layout.is_six ? ip[1][7:0] : ip[2][31:24],
        words: ip[9:2],
        packet_end: packet_end,
        payload: payload_len[6:0] | {7{payload_len[15:7] != '0}},
        gre: gre,
        gre_words: gre_words,
        outer_words: {1'b0, layout.ip_words} + {2'd0, gre_words},
        ethernet: gre[15:0] == TYPE_ETHERNET,
        sums: sums
    };
endmodule

`default_nettype wire
