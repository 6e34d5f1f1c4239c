// GRE header removal (RFC 2784, RFC 2890) on an AXI4-Stream of Ethernet frames: a packet that meets a rule loses its outer IP
// and GRE headers, everything else passes as it is. The software twin is kaido-gre, with the same rules and reasons.
//
//   s_axis ──▶ axis_window ──────────────────────────────────────────▶ host_axis   what the host must do, unchanged; tuser: why
//                │      ╰──▶ gre_shift ────────────────────▶ change ──▶ m_axis     what passes, stripped or not
//                │               ╰──▶ gre_inner ──▶ gre_decide ──▶ gre_verdict
//                ╰──▶ gre_parse, gre_sum ──▶ gre_match ──╯                           gre_regs ◀── s_axil
//
// A frame is shifted before it is known whether it is stripped, so that the packet in its tunnel is read where the shift leaves it.
//
// The first beat leaves WINDOW_BEATS + 1 clocks after it came in, or three more if PIPELINED, and one beat passes each clock. The
// core reads the headers that lie in the first WINDOW_BEATS beats. What turns out at the end of a frame whose first beat has
// left, a frame shorter than its IP header says, longer than may leave or with a wrong checksum of GRE, sets m_axis_tuser with
// tlast: who takes the frame drops it.
//
// tkeep is contiguous from octet 0 and full but in the last beat. s_axis_tuser with tlast marks a frame with an error.

`default_nettype none

module gre_decap
    import net_pkg::*;
    import gre_pkg::*;
#(
    parameter int unsigned DATA_W = 256,
    parameter int unsigned RULES_V4 = 16,
    parameter int unsigned RULES_V6 = 4,
    parameter int unsigned WINDOW_BEATS = 2,
    // Registers behind the shift, before the decision and before the change: three clocks more, and a faster clock.
    parameter bit          PIPELINED = 1'b0
) (
    input  wire logic                clk,
    input  wire logic                rst,

    input  wire logic [DATA_W-1:0]   s_axis_tdata,
    input  wire logic [DATA_W/8-1:0] s_axis_tkeep,
    input  wire logic                s_axis_tlast,
    input  wire logic                s_axis_tuser,
    input  wire logic                s_axis_tvalid,
    output wire logic                s_axis_tready,

    output wire logic [DATA_W-1:0]   m_axis_tdata,
    output wire logic [DATA_W/8-1:0] m_axis_tkeep,
    output wire logic                m_axis_tlast,
    // With tlast: the frame is to be dropped.
    output wire logic                m_axis_tuser,
    output wire logic                m_axis_tvalid,
    input  wire logic                m_axis_tready,

    output wire logic [DATA_W-1:0]   host_axis_tdata,
    output wire logic [DATA_W/8-1:0] host_axis_tkeep,
    output wire logic                host_axis_tlast,
    // The frame had an error (with tlast), and an event_t.
    output wire logic [5:0]          host_axis_tuser,
    output wire logic                host_axis_tvalid,
    input  wire logic                host_axis_tready,

    // What became of each frame, in their order, when its last beat has gone.
    output wire logic                event_valid,
    output wire event_t              event_code,

    input  wire logic [11:0]         s_axil_awaddr,
    input  wire logic                s_axil_awvalid,
    output wire logic                s_axil_awready,
    input  wire logic [31:0]         s_axil_wdata,
    input  wire logic [3:0]          s_axil_wstrb,
    input  wire logic                s_axil_wvalid,
    output wire logic                s_axil_wready,
    output wire logic [1:0]          s_axil_bresp,
    output wire logic                s_axil_bvalid,
    input  wire logic                s_axil_bready,
    input  wire logic [11:0]         s_axil_araddr,
    input  wire logic                s_axil_arvalid,
    output wire logic                s_axil_arready,
    output wire logic [31:0]         s_axil_rdata,
    output wire logic [1:0]          s_axil_rresp,
    output wire logic                s_axil_rvalid,
    input  wire logic                s_axil_rready
);
    localparam int unsigned OCTETS = DATA_W / 8;
    localparam int unsigned WINDOW = OCTETS * WINDOW_BEATS;
    // Stages of a frame's first beat: it leaves from stage 0, is made of what was shifted and what was not, is judged, looked at in
    // the tunnel, shifted and matched, and read. Then it is the oldest of the beats of the window, of which the newest comes in.
    localparam int unsigned MERGED = PIPELINED ? 1 : 0;
    localparam int unsigned JUDGED = MERGED + 1;
    localparam int unsigned FOUND = PIPELINED ? JUDGED + 1 : JUDGED;
    localparam int unsigned SHIFTED = PIPELINED ? FOUND + 1 : FOUND;
    localparam int unsigned PARSED = SHIFTED + 1;
    localparam int unsigned DEPTH = PARSED + WINDOW_BEATS - 1;
    localparam int unsigned RULES = RULES_V4 + RULES_V6;
    // The stage where GRE is summed, and the last one where its sum is known.
    localparam int unsigned SUMMING = PIPELINED ? SHIFTED : PARSED;
    localparam int unsigned SUMMED = PIPELINED ? SUMMING - 1 : SUMMING;
    // Octets that go at most. The end of a packet is so many beats behind the end of what was in its tunnel.
    localparam int unsigned OUTER_MAX = (WINDOW - 16) / 4 < 19 ? (WINDOW - 16) / 4 : 19;
    localparam int unsigned SUM_BEHIND = (4 * OUTER_MAX + 14 + OCTETS - 1) / OCTETS;

    initial begin
        assert (WINDOW_BEATS >= 2 && WINDOW >= 64);
        assert (SUM_BEHIND <= SUMMED);
    end

    wire policy_t                 policy;
    wire rule_v4_t [RULES_V4-1:0] rules_v4;
    wire rule_v6_t [RULES_V6-1:0] rules_v6;
    wire logic                    running;

    wire logic                             head_valid;
    wire logic                             head_taken;
    wire logic [DEPTH-1:0]                 valid;
    wire logic [DEPTH-1:0]                 load;
    wire logic [DEPTH-1:0][DATA_W-1:0]     data;
    wire logic [DEPTH-1:0][OCTETS-1:0]     keep;
    wire logic [DEPTH-1:0]                 first;
    wire logic [DEPTH-1:0]                 last;
    wire logic [DEPTH-1:0]                 user;
    wire logic [DEPTH-1:0][COUNT_W-1:0]    count;
    wire logic                             window_ready;

    assign s_axis_tready = window_ready && running;

    axis_window #(.DATA_W(DATA_W), .DEPTH(DEPTH), .COUNT_W(COUNT_W)) stages (
        .clk, .rst,
        .s_axis_tdata, .s_axis_tkeep, .s_axis_tlast, .s_axis_tuser,
        .s_axis_tvalid(s_axis_tvalid && running),
        .s_axis_tready(window_ready),
        .head_valid, .head_taken, .valid, .load, .data, .keep, .first, .last, .user, .count
    );

    // Reading. Where the headers are is known when the first beat is in its stage.
    wire logic [DEPTH:0][DATA_W-1:0] beats = {s_axis_tdata, data};
    wire layout_t layout_next;
    layout_t      layout;
    wire fields_t fields_read;
    fields_t      fields;
    gre_parse #(.WINDOW(WINDOW)) parse (
        .front(beats[PARSED+1][255:0]), .layout_next, .window(beats[DEPTH:PARSED]), .layout, .fields(fields_read)
    );
    always_ff @(posedge clk) begin
        if (load[PARSED]) layout <= layout_next;
        if (load[PARSED-1] && first[PARSED]) fields <= fields_read;
    end

    // The checksum of GRE, of the frame up to and with the beat of each stage.
    wire logic [SUMMED:0] sums_right;
    wire logic [15:0]     sum_total;
    // Before GRE are 34 octets at least.
    localparam bit EARLY = !PIPELINED && OCTETS <= 34;
    localparam int unsigned LOADS = EARLY ? SUMMING + 1 : SUMMING;
    gre_sum #(.DATA_W(DATA_W), .PARSED(SUMMING), .EARLY(EARLY), .PIPELINED(PIPELINED)) checksum (
        .clk, .load(load[LOADS-1:0]), .is_first(first[SUMMING]), .octets(EARLY ? beats[SUMMING+1] : data[SUMMING]),
        .gre_at(PIPELINED ? fields.layout.gre_at : layout.gre_at),
        .packet_end(PIPELINED ? fields.packet_end : fields_read.packet_end), .total(sum_total), .right(sums_right)
    );
    wire logic unused_sums = &{1'b0, sums_right, sum_total};

    // The shift over the outer headers. The inner header may go on in the beat behind the window: if the frame has one, it comes
    // in now.
    wire logic [WINDOW_BEATS:0] is_same;
    for (genvar beat = 0; beat <= WINDOW_BEATS; beat++) begin : g_same
        if (beat == 0) begin : g_head
            assign is_same[beat] = 1'b1;
        end else begin : g_behind
            assign is_same[beat] = last[SHIFTED+beat-1:SHIFTED] == '0;
        end
    end
    wire logic [DATA_W-1:0] linked_found;
    wire inner_t            inner_found;
    gre_shift #(.DATA_W(DATA_W), .WINDOW_BEATS(WINDOW_BEATS)) shift (
        .ahead(beats[SHIFTED+WINDOW_BEATS:SHIFTED]), .is_same, .is_first(first[SHIFTED]),
        .tags(fields.layout.tags), .outer_words(fields.outer_words), .has_sequence(fields.gre[28]),
        .ethernet(fields.ethernet), .protocol(fields.gre[15:0]), .linked(linked_found), .inner(inner_found)
    );
    // By stage, as far as it is wanted.
    logic [SHIFTED-1:0][OCTETS-1:0][7:0] linked;
    always_ff @(posedge clk) begin
        for (int unsigned at = 0; at < SHIFTED; at++) begin
            if (load[at]) linked[at] <= at == SHIFTED - 1 ? linked_found : linked[(at+1)%SHIFTED];
        end
    end

    // Matching, and what can be said without the packet in the tunnel.
    wire logic               whole;
    wire logic               whole_error;
    wire logic [COUNT_W-1:0] whole_length;
    axis_frame_end #(.DEPTH(WINDOW_BEATS), .COUNT_W(COUNT_W)) window_end (
        .valid(valid[DEPTH-1:SHIFTED]), .last(last[DEPTH-1:SHIFTED]), .user(user[DEPTH-1:SHIFTED]),
        .count(count[DEPTH-1:SHIFTED]), .is_known(whole), .has_error(whole_error), .length(whole_length)
    );
    wire logic unused_window = &{1'b0, whole_error, valid, load, data, keep, first, user, count, linked};

    wire outer_t             outer_found;
    wire logic [RULES-1:0]   met_but_key_found;
    gre_match #(.RULES_V4(RULES_V4), .RULES_V6(RULES_V6), .WINDOW(WINDOW)) match (
        .fields, .is_whole(whole), .length(whole_length), .length_max(policy.length_max),
        .rules_v4, .rules_v6, .outer(outer_found), .met(met_but_key_found)
    );
    wire action_t [RULES-1:0] actions_found;
    for (genvar at = 0; at < RULES_V4; at++) begin : g_action_v4
        assign actions_found[at] = rules_v4[at].condition.action;
    end
    for (genvar at = 0; at < RULES_V6; at++) begin : g_action_v6
        assign actions_found[RULES_V4+at] = rules_v6[at].condition.action;
    end

    wire outer_t              outer;
    wire inner_t              inner;
    wire logic [RULES-1:0]    met_but_key;
    wire facts_t              facts_found;
    wire logic [RULES-1:0]    met_found;
    wire facts_t              facts;
    wire logic [RULES-1:0]    met;
    wire action_t [RULES-1:0] actions;
    gre_inner #(.RULES_V4(RULES_V4), .RULES_V6(RULES_V6)) look (
        .outer, .inner, .rules_v4, .rules_v6, .met_but_key, .met(met_found), .facts(facts_found)
    );
    if (PIPELINED) begin : g_match
        outer_t              outer_kept;
        inner_t              inner_kept;
        logic [RULES-1:0]    met_but_key_kept;
        facts_t              facts_kept;
        logic [RULES-1:0]    met_kept;
        // A rule may be written meanwhile: what it did when it was met holds.
        action_t [RULES-1:0] actions_kept;
        always_ff @(posedge clk) begin
            if (load[SHIFTED-1] && first[SHIFTED]) begin
                outer_kept       <= outer_found;
                inner_kept       <= inner_found;
                met_but_key_kept <= met_but_key_found;
            end
            if (load[FOUND-1] && first[FOUND]) begin
                facts_kept   <= facts_found;
                met_kept     <= met_found;
                actions_kept <= actions_found;
            end
        end
        assign outer = outer_kept;
        assign inner = inner_kept;
        assign met_but_key = met_but_key_kept;
        assign facts = facts_kept;
        assign met = met_kept;
        assign actions = actions_kept;
    end else begin : g_match
        assign outer = outer_found;
        assign inner = inner_found;
        assign met_but_key = met_but_key_found;
        assign facts = facts_found;
        assign met = met_found;
        assign actions = actions_found;
    end

    // Deciding: once, when the first beat leaves the stage. It holds for all beats of the frame.
    wire decision_t decision_made;
    decision_t      judged; // of the frame in MERGED
    wire outcome_t  outcome_made;
    gre_decide #(.RULES(RULES)) decide (.facts, .policy, .met, .actions, .decision(decision_made));
    gre_verdict verdict (.decision(judged), .outcome(outcome_made));
    always_ff @(posedge clk) begin
        if (load[MERGED] && first[JUDGED]) judged <= decision_made;
    end

    // What leaves: of a frame that is stripped what was shifted, but for the outer link header.
    wire logic strips_made = outcome_made.verdict == VERDICT_STRIP;
    wire logic [3:0] takes_shifted = {
        strips_made,
        strips_made && !(first[MERGED] && judged.tags == 2'd2),
        strips_made && !(first[MERGED] && judged.tags != 2'd0),
        strips_made && !(first[MERGED] && !judged.ethernet)
    };
    logic [OCTETS-1:0][7:0] merged;
    always_comb begin
        for (int unsigned at = 0; at < OCTETS; at++) begin
            merged[at] = takes_shifted[at < 12 ? 0 : at < 16 ? 1 : at < 20 ? 2 : 3] ? linked[MERGED][at] : data[MERGED][8*at+:8];
        end
    end

    // The inner checksum: ~old, and what it gains by each change, one after the other with the carry of that before.
    wire logic [16:0] sum_tos = {1'b0, ~judged.inner_sum} + {1'b0, judged.tos_delta};
    wire logic [17:0] sum_both = {1'b0, sum_tos[15:0], 1'b1} + {1'b0, judged.hops_delta, sum_tos[16]};
    wire logic [15:0] sum_made = ~(sum_both[16:1] + {15'd0, sum_both[17]});
    wire logic unused_sum = sum_both[0];

    // Stage 0: what leaves now, and what is known of its frame.
    wire logic decided = load[0] && first[1];
    wire logic [COUNT_W-1:0]    out_len_next; // of the frame that comes into stage 0
    wire decision_t             decision;
    wire outcome_t              outcome;
    wire logic [OCTETS-1:0][7:0] leaving;
    wire logic [15:0]           sum_new;
    if (PIPELINED) begin : g_merge
        decision_t              decision_kept;
        outcome_t               outcome_kept;
        logic [OCTETS-1:0][7:0] merged_kept;
        logic [15:0]            sum_kept;
        always_ff @(posedge clk) begin
            if (load[0]) merged_kept <= merged;
            if (decided) begin
                decision_kept <= judged;
                outcome_kept  <= outcome_made;
                sum_kept      <= sum_made;
            end
        end
        assign out_len_next = judged.out_len;
        assign decision = decision_kept;
        assign outcome = outcome_kept;
        assign leaving = merged_kept;
        assign sum_new = sum_kept;
    end else begin : g_merge
        assign out_len_next = decision_made.out_len;
        assign decision = judged;
        assign outcome = outcome_made;
        assign leaving = merged;
        assign sum_new = sum_made;
    end
    wire logic unused_decision = &{1'b0, decision};

    logic               finished; // all of a stripped packet has left
    logic [COUNT_W-1:0] left;     // octets of it that have not

    // The end of the frame, if it is in the stages that the window has.
    wire logic               end_error;
    wire logic               end_known;
    wire logic [COUNT_W-1:0] end_length;
    axis_frame_end #(.DEPTH(WINDOW_BEATS + 1), .COUNT_W(COUNT_W)) head_end (
        .valid(valid[WINDOW_BEATS:0]), .last(last[WINDOW_BEATS:0]), .user(user[WINDOW_BEATS:0]),
        .count(count[WINDOW_BEATS:0]), .is_known(end_known), .has_error(end_error), .length(end_length)
    );

    wire logic passes = outcome.verdict == VERDICT_PASS;
    wire logic strips = outcome.verdict == VERDICT_STRIP;
    wire logic hosts = outcome.verdict == VERDICT_HOST;
    wire logic cut_short = decision.tunnel && end_known && end_length < decision.packet_end;
    // The end of the packet is in the stages that the window has, or before them, when the end of what was in the tunnel leaves.
    logic sum_right;
    logic goes_on;
    always_comb begin
        sum_right = sums_right[0];
        goes_on   = 1'b1;
        for (int unsigned at = 1; at <= SUM_BEHIND; at++) begin
            goes_on = goes_on && !last[at-1];
            if (goes_on) sum_right = sums_right[at];
        end
    end
    wire logic wrong_sum = outcome.has_sum && !sum_right;
    // A beat has a power of two of octets.
    localparam int unsigned PLACE_W = $clog2(OCTETS);
    wire logic fills = left[COUNT_W-1:PLACE_W] != '0;
    wire logic goes_beyond = left[COUNT_W-1:PLACE_W+1] != '0 || (left[PLACE_W] && left[PLACE_W-1:0] != '0);
    wire logic ends_out = strips ? !goes_beyond || last[0] : last[0];
    wire logic too_long = passes && end_length > policy.length_max;

    assign m_axis_tvalid = head_valid && (passes || (strips && !finished));
    assign host_axis_tvalid = head_valid && hosts;
    assign head_taken = head_valid &&
        (m_axis_tvalid ? m_axis_tready : host_axis_tvalid ? host_axis_tready : 1'b1);

    always_ff @(posedge clk) begin
        if (decided) begin
            finished <= 1'b0;
            left     <= out_len_next;
        end else if (m_axis_tvalid && m_axis_tready) begin
            finished <= ends_out;
            left     <= left - COUNT_W'(OCTETS);
        end
    end

    // The inner packet: class of service, hop count, checksum, at three places.
    wire logic changes = strips && first[0];
    wire logic [2:0] at_tags = {decision.tags == 2'd2, decision.tags == 2'd1, decision.tags == 2'd0};
    wire logic is_v4 = decision.change == CHANGE_V4;
    wire logic is_v6 = decision.change == CHANGE_V6;

    logic second; // the beat in stage 0 is the second of its frame
    always_ff @(posedge clk) begin
        if (head_taken) second <= first[0] && !last[0];
    end

    logic [OCTETS-1:0][7:0] changed;
    always_comb begin
        changed = leaving;
        for (int unsigned tags = 0; tags < 3; tags++) begin
            if (changes && at_tags[tags] && is_v4) begin
                changed[14+4*tags+1] = decision.tos;
                changed[14+4*tags+8] = decision.hops;
            end
            if (changes && at_tags[tags] && is_v6) begin
                changed[14+4*tags][3:0] = decision.tos[7:4];
                changed[14+4*tags+1][7:4] = decision.tos[3:0];
                changed[14+4*tags+7] = decision.hops;
            end
            // With two tags the checksum of IPv4 is behind the first 32 octets.
            if (strips && is_v4 && at_tags[tags] && (14 + 4 * tags + 10 < OCTETS ? first[0] : second)) begin
                changed[(14+4*tags+10)%OCTETS] = sum_new[15:8];
                changed[(14+4*tags+11)%OCTETS] = sum_new[7:0];
            end
        end
    end

    wire logic [OCTETS-1:0] keep_out =
        !strips ? keep[0] : fills ? '1 : ~({OCTETS{1'b1}} << left[PLACE_W-1:0]);

    assign m_axis_tdata = changed;
    assign m_axis_tkeep = keep_out;
    assign m_axis_tlast = ends_out;
    assign m_axis_tuser = ends_out && ((end_known && end_error) || cut_short || wrong_sum || too_long);

    assign host_axis_tdata = PIPELINED ? leaving : data[0];
    assign host_axis_tkeep = keep[0];
    assign host_axis_tlast = last[0];
    assign host_axis_tuser = {last[0] && user[0], outcome.because};

    assign event_valid = head_taken && last[0];
    assign event_code = hosts ? outcome.because : user[0] ? FRAME_ERROR : cut_short ? IP_MALFORMED :
        wrong_sum ? GRE_CHECKSUM : too_long ? TOO_BIG : outcome.because;

    gre_regs #(.DATA_W(DATA_W), .RULES_V4(RULES_V4), .RULES_V6(RULES_V6)) regs (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid, .s_axil_wready,
        .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid, .s_axil_arready,
        .s_axil_rdata, .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
        .policy, .rules_v4, .rules_v6, .ready(running),
        .event_valid, .event_code,
        .event_matched(outcome.matched && !user[0] && !cut_short && !wrong_sum),
        .event_rule(decision.rule),
        .event_octets(count[0])
    );
endmodule

`default_nettype wire
