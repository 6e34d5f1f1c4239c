// What is done with a frame, by what was found in it, the rules that it meets and the policy. Combinational.
//
// The order of the checks is that of kaido-gre, so that a packet with several faults is dropped for the same one.

`default_nettype none

module gre_decide
    import net_pkg::*;
    import gre_pkg::*;
#(
    parameter int unsigned RULES = 20
) (
    input  wire facts_t              facts,
    input  wire policy_t             policy,
    input  wire logic [RULES-1:0]    met,
    // What the rules do.
    input  wire action_t [RULES-1:0] actions,
    output wire decision_t           decision
);
    // The first rule that is met.
    wire logic matched = |met;
    action_t    action;
    logic [5:0] rule;
    always_comb begin
        action = policy.unmatched;
        rule   = '0;
        for (int at = int'(RULES) - 1; at >= 0; at--) begin
            if (met[at]) begin
                action = actions[at];
                rule   = 6'(at);
            end
        end
    end

    // 0xffff after the carries are added. They are few: where they bring another one, what is left is not 0xffff.
    wire logic [16:0] folded = {1'b0, facts.sum[15:0]} + {12'd0, facts.sum[20:16]};
    wire logic right_sum = folded == 17'h0ffff;

    // A packet that goes by route: what no route can help. What has options is the host's, and IPv6.
    wire logic [16:0] folded_inner = {1'b0, facts.routing.sum[15:0]} + {13'd0, facts.routing.sum[19:16]};
    wire logic malformed = facts.routing.wrong_length || folded_inner != 17'h0ffff;
    wire logic unroutable =
        facts.in_v4 && !facts.routing.has_options && (malformed || facts.routing.not_routed);

    // The class of service: ~old + new (RFC 1624 equation 3), of which the upper octet is 0xff; nothing if they are equal.
    function automatic logic [15:0] change_of(input logic [7:0] old, input logic [7:0] to);
        logic [16:0] sum;
        sum = 17'h0ff00 + {9'd0, ~old} + {9'd0, to};
        return to == old ? 16'd0 : sum[15:0] + {15'd0, sum[16]};
    endfunction

    wire logic in_ip = facts.in_v4 || facts.in_v6;
    wire logic unmarkable = in_ip && is_unmarkable(facts.inner_tos[1:0], facts.tos[1:0]);
    wire logic [1:0] new_ecn = marks_of(facts.inner_tos[1:0], facts.tos[1:0]);
    // Of both actions: which of them it is is known last.
    wire logic [7:0] tos_uniform = {facts.tos[7:2], new_ecn};
    wire logic [7:0] tos_pipe = {facts.inner_tos[7:2], new_ecn};
    wire logic [15:0] delta_uniform = change_of(facts.inner_tos, tos_uniform);
    wire logic [15:0] delta_pipe = change_of(facts.inner_tos, tos_pipe);

    verdict_t verdict;
    event_t   because;
    logic     counts;
    logic     has_sum;
    always_comb begin
        verdict = VERDICT_DROP;
        because = PASSED;
        counts  = 1'b0;
        has_sum = 1'b0;
        if (facts.many_tags) begin
            verdict = VERDICT_HOST;
            because = HOST_TAGS;
        end else if (facts.extension) begin
            verdict = VERDICT_HOST;
            because = HOST_EXTENSION;
        end else if (!facts.tunnel) begin
            verdict = policy.other_host ? VERDICT_HOST : VERDICT_PASS;
            because = policy.other_host ? HOST_OTHER : PASSED;
        end else if (facts.broken) begin
            because = IP_MALFORMED;
        end else if (facts.deep) begin
            verdict = VERDICT_HOST;
            because = HOST_DEEP;
        end else if (facts.is_v4 && !right_sum) begin
            because = IP_CHECKSUM;
        end else if (facts.fragment) begin
            verdict = policy.fragment;
            because = policy.fragment == VERDICT_PASS ? PASSED :
                policy.fragment == VERDICT_HOST ? HOST_FRAGMENT : OUTER_FRAGMENT;
        end else if (facts.unreadable) begin
            verdict = policy.unreadable;
            because = policy.unreadable == VERDICT_PASS ? PASSED :
                policy.unreadable == VERDICT_HOST ? HOST_PUNT : facts.unreadable_event;
        end else if (facts.too_deep) begin
            verdict = VERDICT_HOST;
            because = HOST_DEEP;
        end else begin
            verdict = action.verdict;
            // Whether it is right is known at the end of the frame, and goes before what a rule says.
            has_sum = facts.has_sum;
            counts  = matched && action.verdict != VERDICT_HOST;
            unique case (action.verdict)
                VERDICT_PASS: because = PASSED;
                VERDICT_DROP: because = GRE_RULE;
                VERDICT_HOST: because = HOST_PUNT;
                default: begin
                    because = STRIPPED;
                    if (facts.wrong_inner) begin
                        verdict = VERDICT_DROP;
                        because = INNER_MALFORMED;
                    end else if (unmarkable) begin
                        verdict = VERDICT_DROP;
                        because = CONGESTION_MARK;
                    end else if (action.route && in_ip) begin
                        verdict = unroutable ? VERDICT_DROP : VERDICT_HOST;
                        because = !unroutable ? HOST_ROUTE : malformed ? INNER_MALFORMED : NOT_ROUTED;
                        counts  = matched && unroutable;
                    end else if (facts.too_big) begin
                        verdict = VERDICT_DROP;
                        because = TOO_BIG;
                    end
                end
            endcase
        end
    end

    assign decision = '{
        verdict: verdict,
        because: because,
        tunnel: facts.tunnel,
        has_sum: has_sum,
        packet_end: facts.packet_end,
        out_len: facts.out_len,
        tags: facts.tags,
        outer_words: facts.outer_words,
        ethernet: facts.in_ethernet,
        protocol: facts.protocol,
        change: facts.in_v4 ? CHANGE_V4 : facts.in_v6 ? CHANGE_V6 : CHANGE_NONE,
        tos: action.dscp_uniform ? tos_uniform : tos_pipe,
        tos_delta: action.dscp_uniform ? delta_uniform : delta_pipe,
        ttl_uniform: action.ttl_uniform,
        hops: facts.hops,
        inner_hops: facts.inner_hops,
        inner_sum: facts.inner_sum,
        matched: counts,
        rule: rule
    };
    wire logic unused_length = &{1'b0, policy.length_max};
endmodule

`default_nettype wire
