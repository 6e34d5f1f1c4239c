// What can be said of a frame without the packet in its tunnel, and the rules that it meets but for the key. Combinational.

`default_nettype none

module gre_match
    import net_pkg::*;
    import gre_pkg::*;
#(
    parameter int unsigned RULES_V4 = 16,
    parameter int unsigned RULES_V6 = 4,
    // Octets of the window.
    parameter int unsigned WINDOW = 64
) (
    input  wire fields_t                        fields,
    // Octets of the frame, if it ends in the window.
    input  wire logic                           is_whole,
    input  wire logic [COUNT_W-1:0]             length,
    // Of a frame that leaves.
    input  wire logic [COUNT_W-1:0]             length_max,
    input  wire rule_v4_t [RULES_V4-1:0]        rules_v4,
    input  wire rule_v6_t [RULES_V6-1:0]        rules_v6,
    output wire outer_t                         outer,
    // Those of IPv4 first.
    output wire logic [RULES_V4+RULES_V6-1:0]   met
);
    localparam int unsigned WORDS = (WINDOW - 14) / 4;

    wire layout_t layout = fields.layout;
    wire logic is_v6 = fields.is_v6;

    // How many octets of the IP packet are there, if the frame ends in the window.
    wire logic [4:0] link_len = 5'd14 + {1'b0, layout.tags, 2'b00};
    wire logic [8:0] there = {1'b0, length[7:0]} - {4'd0, link_len};
    function automatic logic lacks(input logic whole, input logic [8:0] have, input logic [7:0] wanted);
        return whole && (have[8] || have[7:0] < wanted);
    endfunction
    wire logic reaches_short = fields.packet_end[COUNT_W-1:8] != '0 || length[7:0] < fields.packet_end[7:0];
    wire logic no_link = is_whole && there[8];
    wire logic no_next = lacks(is_whole, there, is_v6 ? 8'd7 : 8'd10);
    wire logic no_header = lacks(is_whole, there, is_v6 ? 8'd40 : 8'd20);
    wire logic no_extension = lacks(is_whole, there, 8'd41);

    // GRE flags: checksum, routing, key, sequence number, strict source route and recursion, version.
    wire logic [15:0] flags = fields.gre[31:16];
    wire logic [15:0] protocol = fields.gre[15:0];
    wire logic [4:0] inner_at = layout.gre_at + {2'd0, fields.gre_words};

    // Octets in the tunnel, below zero if GRE does not end.
    wire logic [7:0] enclosed = {1'b0, fields.payload} - {3'd0, fields.gre_words, 2'b00};
    function automatic logic below(input logic [7:0] octets, input logic [7:0] wanted);
        return octets[7] || octets < wanted;
    endfunction

    // GRE that nobody can read.
    wire logic no_gre = fields.payload[6:2] == '0;
    wire logic wrong_version = flags[2:0] != 3'd0;
    wire logic wrong_flags = (flags & 16'h4c00) != 16'd0;
    wire logic cut_off = enclosed[7];

    // Rules.
    wire logic in_v4 = protocol == TYPE_IPV4;
    wire logic in_v6 = protocol == TYPE_IPV6;
    wire logic in_ethernet = fields.ethernet;
    wire logic [2:0] inner_kind = {in_ethernet, in_v6, in_v4};
    wire logic [31:0] source_v4 = fields.words[1];
    wire logic [31:0] destination_v4 = fields.words[2];
    wire logic [127:0] source_v6 = {fields.words[0], fields.words[1], fields.words[2], fields.words[3]};
    wire logic [127:0] destination_v6 = {fields.words[4], fields.words[5], fields.words[6], fields.words[7]};
    for (genvar at = 0; at < RULES_V4; at++) begin : g_rule_v4
        wire condition_t condition = rules_v4[at].condition;
        assign met[at] = !is_v6 &&
            (source_v4 & rules_v4[at].source_mask) == rules_v4[at].source &&
            (destination_v4 & rules_v4[at].destination_mask) == rules_v4[at].destination &&
            condition.valid && |({condition.ethernet, condition.ipv6, condition.ipv4} & inner_kind);
        wire logic unused_rule = &{1'b0, condition.action, condition.key, rules_v4[at].key};
    end
    for (genvar at = 0; at < RULES_V6; at++) begin : g_rule_v6
        wire condition_t condition = rules_v6[at].condition;
        assign met[RULES_V4+at] = is_v6 &&
            (source_v6 & rules_v6[at].source_mask) == rules_v6[at].source &&
            (destination_v6 & rules_v6[at].destination_mask) == rules_v6[at].destination &&
            condition.valid && |({condition.ethernet, condition.ipv6, condition.ipv4} & inner_kind);
        wire logic unused_rule = &{1'b0, condition.action, condition.key, rules_v6[at].key};
    end

    // Lengths: of what leaves, and of what is in the tunnel.
    wire logic [COUNT_W-1:0] bare_len = fields.packet_end - COUNT_W'({fields.outer_words, 2'b00});
    wire logic [6:0] stripped = {fields.outer_words, 2'b00} + (in_ethernet ? 7'd14 : 7'd0);
    wire logic [COUNT_W-1:0] out_len = fields.packet_end - COUNT_W'(stripped);

    wire logic [20:0] sum;
    sum_tree #(.NUMBERS(SUM_PARTS), .WIDTH(20), .SUM_W(21)) tree (.numbers(fields.sums), .sum(sum));

    assign outer = '{
        many_tags: layout.many_tags && !no_link,
        extension: is_v6 && !no_extension && fields.extended,
        tunnel: (fields.is_v4 || is_v6) && !no_next && fields.next_gre,
        broken: no_header || fields.no_payload || (is_whole && reaches_short),
        deep: layout.gre_at > 5'(WORDS - 1),
        is_v4: fields.is_v4,
        is_v6: is_v6,
        sum: sum,
        fragment: fields.fragment,
        unreadable: no_gre || wrong_version || wrong_flags || cut_off,
        unreadable_event:
            no_gre ? GRE_MALFORMED : wrong_version ? GRE_VERSION : wrong_flags ? GRE_FLAGS : GRE_MALFORMED,
        has_sum: flags[15],
        has_key: flags[13],
        // The first two octets behind GRE must be in the window.
        too_deep: inner_at > 5'((WINDOW - 16) / 4),
        in_v4: in_v4,
        in_v6: in_v6,
        in_ethernet: in_ethernet,
        no_inner: (in_v4 && below(enclosed, 8'd20)) || (in_v6 && below(enclosed, 8'd40)) ||
            (in_ethernet && below(enclosed, 8'd14)),
        too_big: out_len > length_max,
        tos: fields.tos,
        hops: fields.hops,
        tags: layout.tags,
        packet_end: fields.packet_end,
        out_len: out_len,
        room: bare_len - COUNT_W'(link_len)
    };
    wire logic unused_fields = &{1'b0, layout, length, fields};
endmodule

`default_nettype wire
