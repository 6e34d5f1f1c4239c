// What becomes of a frame, by what was decided and the sums of its headers: those are known last. Combinational.

`default_nettype none

module gre_verdict
    import gre_pkg::*;
(
    input  wire decision_t decision,
    output wire outcome_t  outcome
);
    // 0xffff after the carries are added. They are few: where they bring another one, what is left is not 0xffff.
    wire logic wrong_sum = decision.sum[15:0] != ~{11'd0, decision.sum[20:16]};
    wire logic [19:0] inner_sum;
    sum_tree #(.NUMBERS(2), .WIDTH(19)) tree (
        .numbers({decision.routing.sum, 2'd0, decision.routing.sum_last}), .sum(inner_sum)
    );
    wire logic wrong_inner_sum = inner_sum[15:0] != ~{12'd0, inner_sum[19:16]};

    // A packet that goes by route: what no route can help.
    wire logic malformed = decision.routing.wrong_length || wrong_inner_sum;
    wire logic unroutable =
        decision.routes && decision.judges_route && (malformed || decision.routing.not_routed);

    outcome_t found;
    always_comb begin
        found = decision.outcome;
        if (decision.checks_sum && wrong_sum) begin
            found = '{verdict: VERDICT_DROP, because: IP_CHECKSUM, has_sum: 1'b0, matched: 1'b0};
        end else if (unroutable) begin
            found.verdict = VERDICT_DROP;
            found.because = malformed ? INNER_MALFORMED : NOT_ROUTED;
            found.matched = decision.rule_met;
        end
    end
    assign outcome = found;
    wire logic unused_decision = &{1'b0, decision};
endmodule

`default_nettype wire
