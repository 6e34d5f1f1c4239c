// Which rules a frame meets, and all that can be said of it before it is known which of them is the first. Combinational.

`default_nettype none

module gre_match
    import net_pkg::*;
    import gre_pkg::*;
#(
    parameter int unsigned RULES_V4 = 16,
    parameter int unsigned RULES_V6 = 4,
    // Octets of the window.
    parameter int unsigned WINDOW = 64,
    // Octets behind it of which the inner header may need some.
    parameter int unsigned BEHIND = 16
) (
    input  wire fields_t                        fields,
    // Octets of the frame, if it ends in the window.
    input  wire logic                           is_whole,
    input  wire logic [COUNT_W-1:0]             length,
    input  wire logic [WINDOW+BEHIND-1:0][7:0]  octets,
    input  wire rule_v4_t [RULES_V4-1:0]        rules_v4,
    input  wire rule_v6_t [RULES_V6-1:0]        rules_v6,
    output wire facts_t                         facts,
    // Those of IPv4 first.
    output wire logic [RULES_V4+RULES_V6-1:0]   met
);
    localparam int unsigned WORDS = (WINDOW - 14) / 4;
    // Words from an Ethernet header without tags to the inner packet.
    localparam int unsigned INNER_MIN = 6;
    localparam int unsigned INNER_MAX = WORDS < 21 ? WORDS : 21;
    // Bits of a place from INNER_MIN to INNER_MAX that tell it from the others.
    localparam int unsigned INNER_W = $clog2(INNER_MAX - INNER_MIN + 1);

    wire layout_t layout = fields.layout;
    wire logic is_v6 = fields.is_v6;

    // How many octets of the IP packet are there, if the frame ends in the window.
    wire logic [4:0] link_len = 5'd14 + {1'b0, layout.tags, 2'b00};
    wire logic [8:0] there = {1'b0, length[7:0]} - {4'd0, link_len};
    function automatic logic lacks(input logic whole, input logic [8:0] have, input logic [7:0] wanted);
        return whole && (have[8] || have[7:0] < wanted);
    endfunction
    wire logic reaches_short = fields.packet_end[COUNT_W-1:8] != '0 || length[7:0] < fields.packet_end[7:0];
    wire logic no_link = lacks(is_whole, there, 8'd0);
    wire logic no_next = lacks(is_whole, there, is_v6 ? 8'd7 : 8'd10);
    wire logic no_header = lacks(is_whole, there, is_v6 ? 8'd40 : 8'd20);
    wire logic no_extension = lacks(is_whole, there, 8'd41);

    // GRE flags: checksum, routing, key, sequence number, strict source route and recursion, version.
    wire logic [15:0] flags = fields.gre[31:16];
    wire logic [15:0] protocol = fields.gre[15:0];
    wire logic has_sum = flags[15];
    wire logic has_key = flags[13];
    wire logic has_sequence = flags[12];
    wire logic [2:0] gre_words = 3'd1 + {2'd0, has_sum} + {2'd0, has_key} + {2'd0, has_sequence};
    wire logic [4:0] outer_words = {1'b0, layout.ip_words} + {2'd0, gre_words};
    wire logic [4:0] inner_at = layout.gre_at + {2'd0, gre_words};

    // What the frame would be with so many words of GRE: compared with all of them while their number is not known.
    // Four are in place 0.
    typedef struct packed {
        logic no_gre;         // less than the GRE header is behind that of IP
        logic no_v4;          // less than a header of IPv4 is behind that of GRE
        logic no_v6;
        logic no_ethernet;
        logic too_big;        // longer than may leave
        logic too_big_framed; // the same of an Ethernet frame in the tunnel
    } lengths_t;
    wire logic [5:0] excess =
        fields.over[COUNT_W] ? '0 : fields.over[COUNT_W-1:6] != '0 ? '1 : fields.over[5:0];
    wire lengths_t [3:0] by_words;
    for (genvar at = 0; at < 4; at++) begin : g_length
        localparam int unsigned GRE_LEN = 4 * (at + 1);
        assign by_words[(at+1)%4] = '{
            no_gre: fields.payload < 7'(GRE_LEN),
            no_v4: fields.payload < 7'(GRE_LEN + 20),
            no_v6: fields.payload < 7'(GRE_LEN + 40),
            no_ethernet: fields.payload < 7'(GRE_LEN + 14),
            too_big: excess > 6'(GRE_LEN),
            too_big_framed: excess > 6'(GRE_LEN + 14)
        };
    end
    wire lengths_t lengths = by_words[gre_words[1:0]];

    // GRE that nobody can read.
    wire logic no_gre = by_words[1].no_gre;
    wire logic wrong_version = flags[2:0] != 3'd0;
    wire logic wrong_flags = (flags & 16'h4c00) != 16'd0;
    wire logic cut_off = lengths.no_gre;

    // Rules.
    wire logic in_v4 = protocol == TYPE_IPV4;
    wire logic in_v6 = protocol == TYPE_IPV6;
    wire logic in_ethernet = protocol == TYPE_ETHERNET;

    function automatic logic meets(
        input logic [5:0] condition, input logic [31:0] rule_key, input logic is_keyed, input logic [31:0] key,
        input logic [2:0] inner
    );
        // The bits of condition_t behind the action: what may be in the tunnel, the key, and whether there is a rule.
        logic key_fits;
        unique case (condition[2:1])
            KEY_ABSENT: key_fits = !is_keyed;
            KEY_IS: key_fits = is_keyed && key == rule_key;
            default: key_fits = 1'b1;
        endcase
        return condition[0] && key_fits && |(condition[5:3] & inner);
    endfunction

    wire logic [2:0] inner_kind = {in_ethernet, in_v6, in_v4};
    wire logic [31:0] source_v4 = fields.words[1];
    wire logic [31:0] destination_v4 = fields.words[2];
    wire logic [127:0] source_v6 = {fields.words[0], fields.words[1], fields.words[2], fields.words[3]};
    wire logic [127:0] destination_v6 = {fields.words[4], fields.words[5], fields.words[6], fields.words[7]};
    for (genvar at = 0; at < RULES_V4; at++) begin : g_rule_v4
        assign met[at] = !is_v6 &&
            (source_v4 & rules_v4[at].source_mask) == rules_v4[at].source &&
            (destination_v4 & rules_v4[at].destination_mask) == rules_v4[at].destination &&
            meets(rules_v4[at].condition[5:0], rules_v4[at].key, has_key, fields.key, inner_kind);
        wire logic unused_action = &{1'b0, rules_v4[at].condition.action};
    end
    for (genvar at = 0; at < RULES_V6; at++) begin : g_rule_v6
        assign met[RULES_V4+at] = is_v6 &&
            (source_v6 & rules_v6[at].source_mask) == rules_v6[at].source &&
            (destination_v6 & rules_v6[at].destination_mask) == rules_v6[at].destination &&
            meets(rules_v6[at].condition[5:0], rules_v6[at].key, has_key, fields.key, inner_kind);
        wire logic unused_action = &{1'b0, rules_v6[at].condition.action};
    end

    // The packet in the tunnel.
    wire logic [1:0] option_words = {1'b0, has_sum} + {1'b0, has_key} + {1'b0, has_sequence};
    wire logic [15:0] inner = fields.inner[option_words];
    wire logic wrong_inner =
        (in_v4 && (lengths.no_v4 || inner[15:12] != 4'd4 || inner[11:8] < 4'd5)) ||
        (in_v6 && (lengths.no_v6 || inner[15:12] != 4'd6)) ||
        (in_ethernet && lengths.no_ethernet);

    // Its first words: all of IPv4 without options.
    logic [2**INNER_W-1:0][4:0][31:0] headers;
    always_comb begin
        headers = '0;
        for (int unsigned at = INNER_MIN; at <= INNER_MAX; at++) begin
            for (int unsigned word = 0; word < 5; word++) begin
                for (int unsigned octet = 0; octet < 4; octet++) begin
                    headers[at%(2**INNER_W)][word][8*(3-octet)+:8] = octets[14+4*(at+word)+octet];
                end
            end
        end
    end
    wire logic [4:0][31:0] header = headers[inner_at[INNER_W-1:0]];

    // Routed, it is dropped for what its header says, as a router does (RFC 1812 5.2.2, 5.3.7).
    wire logic [COUNT_W-1:0] inner_room =
        fields.packet_end - COUNT_W'(link_len) - COUNT_W'({outer_words, 2'b00});
    logic [19:0] header_sum;
    always_comb begin
        header_sum = '0;
        for (int unsigned word = 0; word < 5; word++) begin
            header_sum += {4'd0, header[word][31:16]} + {4'd0, header[word][15:0]};
        end
    end
    // A group, all, this host.
    function automatic logic is_special(input logic [31:0] address);
        return address[31:28] == 4'he || address == '1 || address[31:24] == 8'd127;
    endfunction
    wire routing_t routing = '{
        has_options: inner[11:8] != 4'd5,
        wrong_length: header[0][15:0] < 16'd20 || COUNT_W'(header[0][15:0]) > inner_room,
        sum: header_sum,
        not_routed: is_special(header[3]) || is_special(header[4]) || header[4] == '0 ||
            header[4][31:16] == {8'd169, 8'd254}
    };

    wire logic [6:0] stripped = {outer_words, 2'b00} + (in_ethernet ? 7'd14 : 7'd0);

    logic [20:0] sum;
    always_comb begin
        sum = '0;
        for (int unsigned at = 0; at < SUM_PAIRS; at++) sum += 21'(fields.sums[at]);
    end

    assign facts = '{
        many_tags: layout.many_tags && !no_link,
        extension: is_v6 && !no_extension && fields.extended,
        tunnel: (fields.is_v4 || is_v6) && !no_next && fields.next_gre,
        broken: no_header || fields.no_payload || (is_whole && reaches_short),
        deep: layout.gre_at > 5'(WORDS - 1),
        is_v4: fields.is_v4,
        sum: sum,
        fragment: fields.fragment,
        unreadable: no_gre || wrong_version || wrong_flags || cut_off,
        unreadable_event:
            no_gre ? GRE_MALFORMED : wrong_version ? GRE_VERSION : wrong_flags ? GRE_FLAGS : GRE_MALFORMED,
        has_sum: has_sum,
        // The first two octets behind GRE must be in the window.
        too_deep: inner_at > 5'((WINDOW - 16) / 4),
        in_v4: in_v4,
        in_v6: in_v6,
        in_ethernet: in_ethernet,
        wrong_inner: wrong_inner,
        too_big: in_ethernet ? lengths.too_big_framed : lengths.too_big,
        tos: fields.tos,
        inner_tos: in_v6 ? inner[11:4] : inner[7:0],
        hops: fields.hops,
        inner_hops: in_v6 ? header[1][7:0] : header[2][31:24],
        inner_sum: header[2][15:0],
        routing: routing,
        tags: layout.tags,
        outer_words: outer_words,
        protocol: protocol,
        packet_end: fields.packet_end,
        out_len: fields.packet_end - COUNT_W'(stripped)
    };
    wire logic unused_octets = &{1'b0, octets, layout, length};
endmodule

`default_nettype wire
