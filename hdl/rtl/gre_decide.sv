// What is done with a frame, by what was read of it, the rules and the policy. Combinational.
//
// The order of the checks is that of kaido-gre, so that a packet with several faults is dropped for the same one.

`default_nettype none

module gre_decide
    import net_pkg::*;
    import gre_pkg::*;
#(
    parameter int unsigned RULES_V4 = 16,
    parameter int unsigned RULES_V6 = 4,
    // Octets of the window.
    parameter int unsigned WINDOW = 64
) (
    input  wire fields_t                 fields,
    input  wire policy_t                 policy,
    input  wire rule_v4_t [RULES_V4-1:0] rules_v4,
    input  wire rule_v6_t [RULES_V6-1:0] rules_v6,
    output wire decision_t               decision
);
    // GRE flags: checksum, routing, key, sequence number, strict source route and recursion, version.
    wire logic [15:0] flags = fields.gre[31:16];
    wire logic [15:0] protocol = fields.gre[15:0];
    wire logic has_sum = flags[15];
    wire logic has_key = flags[13];
    wire logic has_sequence = flags[12];
    wire logic [2:0] gre_words = 3'd1 + {2'd0, has_sum} + {2'd0, has_key} + {2'd0, has_sequence};
    wire logic [4:0] outer_words = {1'b0, fields.ip_words} + {2'd0, gre_words};

    // GRE that nobody can read.
    wire logic no_gre = fields.payload_len < COUNT_W'(4);
    wire logic wrong_version = flags[2:0] != 3'd0;
    wire logic wrong_flags = (flags & 16'h4c00) != 16'd0;
    wire logic cut_off = fields.payload_len < COUNT_W'({gre_words, 2'b00});
    wire logic unreadable = no_gre || wrong_version || wrong_flags || cut_off;
    wire event_t unreadable_event =
        no_gre ? GRE_MALFORMED : wrong_version ? GRE_VERSION : wrong_flags ? GRE_FLAGS : GRE_MALFORMED;

    // The first two octets behind GRE must be in the window.
    wire logic too_deep = {1'b0, outer_words} + {4'd0, fields.tags} > 6'((WINDOW - 16) / 4);

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
    wire logic [RULES_V4-1:0] met_v4;
    wire logic [RULES_V6-1:0] met_v6;

    for (genvar at = 0; at < RULES_V4; at++) begin : g_rule_v4
        assign met_v4[at] = !fields.is_v6 &&
            (fields.source[31:0] & rules_v4[at].source_mask) == rules_v4[at].source &&
            (fields.destination[31:0] & rules_v4[at].destination_mask) == rules_v4[at].destination &&
            meets(rules_v4[at].condition[5:0], rules_v4[at].key, has_key, fields.key, inner_kind);
    end
    for (genvar at = 0; at < RULES_V6; at++) begin : g_rule_v6
        assign met_v6[at] = fields.is_v6 &&
            (fields.source & rules_v6[at].source_mask) == rules_v6[at].source &&
            (fields.destination & rules_v6[at].destination_mask) == rules_v6[at].destination &&
            meets(rules_v6[at].condition[5:0], rules_v6[at].key, has_key, fields.key, inner_kind);
    end

    // The first that is met.
    wire logic matched = |met_v4 || |met_v6;
    action_t    action;
    logic [5:0] rule;
    always_comb begin
        action = policy.unmatched;
        rule   = '0;
        for (int at = int'(RULES_V6) - 1; at >= 0; at--) begin
            if (met_v6[at]) begin
                action = rules_v6[at].condition.action;
                rule   = 6'(int'(RULES_V4) + at);
            end
        end
        for (int at = int'(RULES_V4) - 1; at >= 0; at--) begin
            if (met_v4[at]) begin
                action = rules_v4[at].condition.action;
                rule   = 6'(at);
            end
        end
    end

    // The packet in the tunnel.
    wire logic [COUNT_W-1:0] inner_len = fields.payload_len - COUNT_W'({gre_words, 2'b00});
    wire logic wrong_inner =
        (in_v4 && (inner_len < COUNT_W'(20) || fields.inner[15:12] != 4'd4 || fields.inner[11:8] < 4'd5)) ||
        (in_v6 && (inner_len < COUNT_W'(40) || fields.inner[15:12] != 4'd6)) ||
        (in_ethernet && inner_len < COUNT_W'(14));
    wire logic [7:0] inner_tos = in_v6 ? fields.inner[11:4] : fields.inner[7:0];

    wire logic unmarkable = (in_v4 || in_v6) && is_unmarkable(inner_tos[1:0], fields.tos[1:0]);
    wire logic [1:0] new_ecn = marks_of(inner_tos[1:0], fields.tos[1:0]);
    wire logic [7:0] new_tos = {action.dscp_uniform ? fields.tos[7:2] : inner_tos[7:2], new_ecn};
    // ~old + new (RFC 1624 equation 3), of which the upper octet is 0xff; nothing if they are equal.
    wire logic [16:0] tos_sum = 17'h0ff00 + {9'd0, ~inner_tos} + {9'd0, new_tos};
    wire logic [15:0] tos_delta = new_tos == inner_tos ? 16'd0 : tos_sum[15:0] + {15'd0, tos_sum[16]};

    wire logic [COUNT_W-1:0] stripped = COUNT_W'({outer_words, 2'b00}) + (in_ethernet ? COUNT_W'(14) : COUNT_W'(0));
    wire logic [COUNT_W-1:0] out_len = fields.packet_end - stripped;

    verdict_t verdict;
    event_t   because;
    logic     counts;
    always_comb begin
        verdict = VERDICT_DROP;
        because = PASSED;
        counts  = 1'b0;
        if (fields.many_tags) begin
            verdict = VERDICT_HOST;
            because = HOST_TAGS;
        end else if (fields.extension) begin
            verdict = VERDICT_HOST;
            because = HOST_EXTENSION;
        end else if (!fields.tunnel) begin
            verdict = policy.other_host ? VERDICT_HOST : VERDICT_PASS;
            because = policy.other_host ? HOST_OTHER : PASSED;
        end else if (fields.broken) begin
            because = IP_MALFORMED;
        end else if (fields.deep) begin
            verdict = VERDICT_HOST;
            because = HOST_DEEP;
        end else if (fields.wrong_sum) begin
            because = IP_CHECKSUM;
        end else if (fields.fragment) begin
            verdict = policy.fragment;
            because = policy.fragment == VERDICT_PASS ? PASSED :
                policy.fragment == VERDICT_HOST ? HOST_FRAGMENT : OUTER_FRAGMENT;
        end else if (unreadable) begin
            verdict = policy.unreadable;
            because = policy.unreadable == VERDICT_PASS ? PASSED :
                policy.unreadable == VERDICT_HOST ? HOST_PUNT : unreadable_event;
        end else if (has_sum) begin
            verdict = VERDICT_HOST;
            because = HOST_CHECKSUM;
        end else if (too_deep) begin
            verdict = VERDICT_HOST;
            because = HOST_DEEP;
        end else begin
            verdict = action.verdict;
            counts  = matched && action.verdict != VERDICT_HOST;
            unique case (action.verdict)
                VERDICT_PASS: because = PASSED;
                VERDICT_DROP: because = GRE_RULE;
                VERDICT_HOST: because = HOST_PUNT;
                default: begin
                    because = STRIPPED;
                    if (action.route && (in_v4 || in_v6)) begin
                        verdict = VERDICT_HOST;
                        because = HOST_ROUTE;
                        counts  = 1'b0;
                    end else if (wrong_inner) begin
                        verdict = VERDICT_DROP;
                        because = INNER_MALFORMED;
                    end else if (unmarkable) begin
                        verdict = VERDICT_DROP;
                        because = CONGESTION_MARK;
                    end else if (out_len > policy.length_max) begin
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
        tunnel: fields.tunnel,
        packet_end: fields.packet_end,
        out_len: out_len,
        tags: fields.tags,
        outer_words: outer_words,
        ethernet: in_ethernet,
        protocol: protocol,
        change: in_v4 ? CHANGE_V4 : in_v6 ? CHANGE_V6 : CHANGE_NONE,
        tos: new_tos,
        tos_delta: tos_delta,
        ttl_uniform: action.ttl_uniform,
        hops: fields.hops,
        matched: counts,
        rule: rule
    };
endmodule

`default_nettype wire
