// What is done with a frame, by what was found in it, the rules that it meets and the policy. Combinational.
//
// The order of the checks is that of kaido-gre, so that a packet with several faults is dropped for the same one. What the sums of
// headers change is decided a clock later, in gre_verdict.

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

    // The class of service: ~old + new (RFC 1624 equation 3), of which the upper octet is 0xff; nothing if they are equal.
    function automatic logic [15:0] change_of(input logic [7:0] old, input logic [7:0] to);
        logic [16:0] sum;
        sum = 17'h0ff00 + {9'd0, ~old} + {9'd0, to};
        return (sum[15:0] + {15'd0, sum[16]}) & {16{to != old}};
    endfunction

    wire outer_t outer = facts.outer;
    wire logic in_ip = outer.in_v4 || outer.in_v6;
    wire logic unmarkable = in_ip && is_unmarkable(facts.inner_tos[1:0], outer.tos[1:0]);
    wire logic [1:0] new_ecn = marks_of(facts.inner_tos[1:0], outer.tos[1:0]);
    // Of both actions: which of them it is is known last.
    wire logic [7:0] tos_uniform = {outer.tos[7:2], new_ecn};
    wire logic [7:0] tos_pipe = {facts.inner_tos[7:2], new_ecn};
    wire logic [15:0] delta_uniform = change_of(facts.inner_tos, tos_uniform);
    wire logic [15:0] delta_pipe = change_of(facts.inner_tos, tos_pipe);

    // The hop count: of uniform the lower of both. ~old + new, of which the lower octet is 0xff.
    wire logic lowers = action.ttl_uniform && outer.hops < facts.inner_hops;
    wire logic [7:0] hops_less = outer.hops + ~facts.inner_hops;

    // What is no tunnel packet that the core reads, and all others.
    wire logic is_other = outer.many_tags || outer.extension || !outer.tunnel;
    outcome_t other;
    outcome_t packet;
    logic     checks_sum;
    logic     routes;
    always_comb begin
        other = '{verdict: VERDICT_HOST, because: HOST_TAGS, has_sum: 1'b0, matched: 1'b0};
        if (!outer.many_tags) begin
            if (outer.extension) begin
                other.because = HOST_EXTENSION;
            end else begin
                other.verdict = policy.other_host ? VERDICT_HOST : VERDICT_PASS;
                other.because = policy.other_host ? HOST_OTHER : PASSED;
            end
        end

        packet     = '{verdict: VERDICT_DROP, because: PASSED, has_sum: 1'b0, matched: 1'b0};
        checks_sum = outer.is_v4;
        routes     = 1'b0;
        if (outer.broken) begin
            packet.because = IP_MALFORMED;
            checks_sum = 1'b0;
        end else if (outer.deep) begin
            packet.verdict = VERDICT_HOST;
            packet.because = HOST_DEEP;
            checks_sum = 1'b0;
        end else if (outer.fragment) begin
            packet.verdict = policy.fragment;
            packet.because = policy.fragment == VERDICT_PASS ? PASSED :
                policy.fragment == VERDICT_HOST ? HOST_FRAGMENT : OUTER_FRAGMENT;
        end else if (outer.unreadable) begin
            packet.verdict = policy.unreadable;
            packet.because = policy.unreadable == VERDICT_PASS ? PASSED :
                policy.unreadable == VERDICT_HOST ? HOST_PUNT : outer.unreadable_event;
        end else if (outer.too_deep) begin
            packet.verdict = VERDICT_HOST;
            packet.because = HOST_DEEP;
        end else begin
            packet.verdict = action.verdict;
            // Whether it is right is known at the end of the frame, and goes before what a rule says.
            packet.has_sum = outer.has_sum;
            packet.matched = matched && action.verdict != VERDICT_HOST;
            unique case (action.verdict)
                VERDICT_PASS: packet.because = PASSED;
                VERDICT_DROP: packet.because = GRE_RULE;
                VERDICT_HOST: packet.because = HOST_PUNT;
                default: begin
                    packet.because = STRIPPED;
                    if (facts.wrong_inner) begin
                        packet.verdict = VERDICT_DROP;
                        packet.because = INNER_MALFORMED;
                    end else if (unmarkable) begin
                        packet.verdict = VERDICT_DROP;
                        packet.because = CONGESTION_MARK;
                    end else if (action.route && in_ip) begin
                        routes         = 1'b1;
                        packet.verdict = VERDICT_HOST;
                        packet.because = HOST_ROUTE;
                        packet.matched = 1'b0;
                    end else if (outer.too_big) begin
                        packet.verdict = VERDICT_DROP;
                        packet.because = TOO_BIG;
                    end
                end
            endcase
        end
    end

    // Written without a constant that a register would be reset to: its reset would be late, behind its enable.
    localparam int unsigned OUTCOME_W = $bits(outcome_t);
    wire outcome_t outcome = outcome_t'(({OUTCOME_W{is_other}} & other) | ({OUTCOME_W{!is_other}} & packet));

    assign decision = '{
        outcome: outcome,
        checks_sum: checks_sum & !is_other,
        sum: outer.sum,
        routes: routes & !is_other,
        // What has options is the host's, and IPv6.
        judges_route: outer.in_v4 && !facts.routing.has_options,
        rule_met: matched,
        routing: facts.routing,
        tunnel: outer.tunnel,
        packet_end: outer.packet_end,
        out_len: outer.out_len,
        tags: outer.tags,
        ethernet: outer.in_ethernet,
        change: outer.in_v4 ? CHANGE_V4 : outer.in_v6 ? CHANGE_V6 : CHANGE_NONE,
        tos: action.dscp_uniform ? tos_uniform : tos_pipe,
        tos_delta: action.dscp_uniform ? delta_uniform : delta_pipe,
        hops: lowers ? outer.hops : facts.inner_hops,
        hops_delta: {hops_less, 8'hff} & {16{lowers}},
        inner_sum: facts.inner_sum,
        rule: rule
    };
    wire logic unused_facts = &{1'b0, policy.length_max, facts, outer};
endmodule

`default_nettype wire
