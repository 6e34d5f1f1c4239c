// The packet in the tunnel, and the keys of rules: all that can be said of a frame before it is known which of the rules that it
// meets is the first. Combinational.

`default_nettype none

module gre_inner
    import net_pkg::*;
    import gre_pkg::*;
#(
    parameter int unsigned RULES_V4 = 16,
    parameter int unsigned RULES_V6 = 4
) (
    input  wire outer_t                         outer,
    input  wire inner_t                         inner,
    input  wire rule_v4_t [RULES_V4-1:0]        rules_v4,
    input  wire rule_v6_t [RULES_V6-1:0]        rules_v6,
    // The rules that it meets but for the key, and with it. Those of IPv4 first.
    input  wire logic [RULES_V4+RULES_V6-1:0]   met_but_key,
    output wire logic [RULES_V4+RULES_V6-1:0]   met,
    output wire facts_t                         facts
);
    function automatic logic key_fits(input key_match_t condition, input logic [31:0] rule_key, input logic is_keyed,
        input logic [31:0] key);
        unique case (condition)
            KEY_ABSENT: return !is_keyed;
            KEY_IS: return is_keyed && key == rule_key;
            default: return 1'b1;
        endcase
    endfunction
    for (genvar at = 0; at < RULES_V4; at++) begin : g_rule_v4
        assign met[at] = met_but_key[at] &&
            key_fits(rules_v4[at].condition.key, rules_v4[at].key, outer.has_key, inner.key);
        wire logic unused_rule = &{1'b0, rules_v4[at]};
    end
    for (genvar at = 0; at < RULES_V6; at++) begin : g_rule_v6
        assign met[RULES_V4+at] = met_but_key[RULES_V4+at] &&
            key_fits(rules_v6[at].condition.key, rules_v6[at].key, outer.has_key, inner.key);
        wire logic unused_rule = &{1'b0, rules_v6[at]};
    end

    // Words of the header: what stands in each place depends on the tags.
    wire logic [2:0] tags = {outer.tags == 2'd2, outer.tags == 2'd1, outer.tags == 2'd0};
    function automatic logic [31:0] by_tags(input logic [2:0] there, input logic [31:0] none, input logic [31:0] one,
        input logic [31:0] two);
        return ({32{there[0]}} & none) | ({32{there[1]}} & one) | ({32{there[2]}} & two);
    endfunction
    wire logic [4:0][31:0] words = inner.words;
    wire logic [31:0] header_0 = by_tags(tags, words[3], words[4], words[0]);
    wire logic [31:0] header_1 = by_tags(tags, words[4], words[0], words[1]);
    wire logic [31:0] header_2 = by_tags(tags, words[0], words[1], words[2]);

    // Routed, it is dropped for what its header says, as a router does (RFC 1812 5.2.2, 5.3.7).
    wire logic [18:0] sum;
    wire logic [16:0] sum_last;
    sum_tree #(.NUMBERS(8), .WIDTH(16)) most (.numbers(words[3:0]), .sum(sum));
    sum_tree #(.NUMBERS(2), .WIDTH(16)) rest (.numbers(words[4]), .sum(sum_last));
    // A group, all, this host. Source and destination are neighbours in the ring of words.
    function automatic logic is_special(input logic [31:0] address);
        return address[31:28] == 4'he || address == '1 || address[31:24] == 8'd127;
    endfunction
    function automatic logic is_no_destination(input logic [31:0] address);
        return address == '0 || address[31:16] == {8'd169, 8'd254};
    endfunction
    wire logic [4:1] special = {is_special(words[4]), is_special(words[3]), is_special(words[2]), is_special(words[1])};
    wire logic not_routed =
        (tags[0] && (special[1] || special[2] || is_no_destination(words[2]))) ||
        (tags[1] && (special[2] || special[3] || is_no_destination(words[3]))) ||
        (tags[2] && (special[3] || special[4] || is_no_destination(words[4])));

    assign facts = '{
        outer: outer,
        wrong_inner: outer.no_inner ||
            (outer.in_v4 && (header_0[31:28] != 4'd4 || header_0[27:24] < 4'd5)) ||
            (outer.in_v6 && header_0[31:28] != 4'd6),
        inner_tos: outer.in_v6 ? header_0[27:20] : header_0[23:16],
        inner_hops: outer.in_v6 ? header_1[7:0] : header_2[31:24],
        inner_sum: header_2[15:0],
        routing: '{
            has_options: header_0[27:24] != 4'd5,
            wrong_length: header_0[15:0] < 16'd20 || COUNT_W'(header_0[15:0]) > outer.room,
            sum: sum,
            sum_last: sum_last,
            not_routed: not_routed
        }
    };
    wire logic unused_header = &{1'b0, header_1, header_2};
endmodule

`default_nettype wire
