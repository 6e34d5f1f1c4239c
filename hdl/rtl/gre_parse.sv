// Reads Ethernet, IP and GRE at the front of a frame. Combinational.
//
// The window holds the frame's first octets; what stands behind the end of a shorter frame means nothing.

`default_nettype none

module gre_parse
    import net_pkg::*;
    import gre_pkg::*;
#(
    // Octets of the window.
    parameter int unsigned WINDOW = 64
) (
    input  wire logic [WINDOW-1:0][7:0] window,
    // Octets of the frame, if it ends in the window.
    input  wire logic                   is_whole,
    input  wire logic [COUNT_W-1:0]     length,
    output wire fields_t                fields
);
    // Words of four octets behind an Ethernet header without tags, and what is left.
    localparam int unsigned WORDS = (WINDOW - 14) / 4;
    localparam int unsigned PAST = WINDOW - 14 - 4 * WORDS;
    // Words that can matter: IPv4 with all options, GRE with key and sequence number, and what follows.
    localparam int unsigned WORDS_MAX = 19;

    initial begin
        assert (WINDOW >= 64 && PAST == 2);
    end

    function automatic logic [15:0] half(input logic [WINDOW-1:0][7:0] octets, input int unsigned at);
        return {octets[at], octets[at+1]};
    endfunction

    // Whether the frame has so many octets.
    function automatic logic has(input logic whole, input logic [COUNT_W-1:0] len, input logic [COUNT_W-1:0] wanted);
        return !whole || len >= wanted;
    endfunction

    // Ethernet and tags.
    wire logic [2:0] vlan = {is_vlan(half(window, 20)), is_vlan(half(window, 16)), is_vlan(half(window, 12))};
    wire logic [1:0] tags = !vlan[0] ? 2'd0 : !vlan[1] ? 2'd1 : 2'd2;
    wire logic [COUNT_W-1:0] link_len = COUNT_W'(14) + COUNT_W'({tags, 2'b00});
    wire logic [15:0] ethertype = tags == 2'd0 ? half(window, 12) : tags == 2'd1 ? half(window, 16) : half(window, 20);
    wire logic has_link = has(is_whole, length, link_len);

    // The IP packet, by words; beyond the window there is nothing.
    wire logic [WORDS_MAX:0][31:0] ip;
    for (genvar at = 0; at <= WORDS_MAX; at++) begin : g_word
        wire logic [2:0][31:0] by_tags;
        for (genvar n = 0; n < 3; n++) begin : g_tags
            localparam int unsigned FROM = 14 + 4 * (at + n);
            for (genvar octet = 0; octet < 4; octet++) begin : g_octet
                if (FROM + octet < WINDOW) begin : g_in
                    assign by_tags[n][8*(3-octet)+:8] = window[FROM+octet];
                end else begin : g_out
                    assign by_tags[n][8*(3-octet)+:8] = 8'd0;
                end
            end
        end
        assign ip[at] = tags == 2'd0 ? by_tags[0] : tags == 2'd1 ? by_tags[1] : by_tags[2];
    end

    wire logic is_v4 = has_link && ethertype == TYPE_IPV4 && ip[0][31:28] == 4'd4;
    wire logic is_v6 = has_link && ethertype == TYPE_IPV6 && ip[0][31:28] == 4'd6;

    // IPv4 (RFC 791).
    wire logic [3:0] ihl = ip[0][27:24];
    wire logic [15:0] total_v4 = ip[0][15:0];
    wire logic gre_v4 = is_v4 && has(is_whole, length, link_len + 10) && ip[2][23:16] == PROTOCOL_GRE;
    wire logic wrong_v4 = !has(is_whole, length, link_len + 20) || ihl < 4'd5 || total_v4 < {10'd0, ihl, 2'b00};

    // IPv6 (RFC 8200).
    wire logic [15:0] payload_v6 = ip[1][31:16];
    wire logic [7:0] next_v6 = ip[1][15:8];
    wire logic gre_v6 = is_v6 && has(is_whole, length, link_len + 7) && next_v6 == PROTOCOL_GRE;
    wire logic wrong_v6 = !has(is_whole, length, link_len + 40) || payload_v6 == 16'd0;
    // Behind one extension header anything but GRE or another of them is no tunnel packet.
    wire logic [7:0] after_extension = ip[10][31:24];
    wire logic extended = is_v6 && has(is_whole, length, link_len + 41) && is_extension(next_v6) &&
        (is_extension(after_extension) || after_extension == PROTOCOL_GRE);

    wire logic [COUNT_W-1:0] total = is_v6 ? COUNT_W'(40) + COUNT_W'(payload_v6) : COUNT_W'(total_v4);
    wire logic [3:0] ip_words = is_v6 ? 4'd10 : ihl;
    wire logic [COUNT_W-1:0] packet_end = link_len + total;

    // Header checksum: ten words of 16 bits, and the options.
    logic [20:0] sum;
    always_comb begin
        sum = '0;
        for (int unsigned at = 0; at < 15; at++) begin
            if (at < 5 || 4'(at) < ihl) sum = sum + 21'(ip[at][31:16]) + 21'(ip[at][15:0]);
        end
    end
    // 0xffff after the carries are added, which takes two steps.
    wire logic [16:0] folded = {1'b0, sum[15:0]} + {12'd0, sum[20:16]};
    wire logic right_sum = folded == 17'h0ffff || folded == 17'h1fffe;

    // GRE (RFC 2784, RFC 2890).
    wire logic [4:0] gre_at = {1'b0, ip_words};
    wire logic [31:0] gre = ip[gre_at];
    wire logic [1:0] option_words = {1'b0, gre[29]} + {1'b0, gre[28]};
    wire logic [4:0] inner_at = gre_at + 5'd1 + {3'd0, option_words};

    assign fields = '{
        tags: tags,
        many_tags: &vlan && has_link,
        extension: extended,
        tunnel: gre_v4 || gre_v6,
        is_v6: is_v6,
        broken: (is_v6 ? wrong_v6 : wrong_v4) || !has(is_whole, length, packet_end),
        wrong_sum: !is_v6 && !right_sum,
        fragment: !is_v6 && ip[1][13:0] != 14'd0,
        deep: {1'b0, gre_at} + {4'd0, tags} > 6'(WORDS - 1),
        source: is_v6 ? {ip[2], ip[3], ip[4], ip[5]} : {96'd0, ip[3]},
        destination: is_v6 ? {ip[6], ip[7], ip[8], ip[9]} : {96'd0, ip[4]},
        tos: is_v6 ? ip[0][27:20] : ip[0][23:16],
        hops: is_v6 ? ip[1][7:0] : ip[2][31:24],
        packet_end: packet_end,
        payload_len: total - COUNT_W'({ip_words, 2'b00}),
        ip_words: ip_words,
        gre: gre,
        key: ip[gre_at+5'd1],
        inner: ip[inner_at][31:16]
    };
endmodule

`default_nettype wire
