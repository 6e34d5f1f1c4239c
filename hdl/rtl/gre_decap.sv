// GRE header removal (RFC 2784, RFC 2890) on an AXI4-Stream of Ethernet frames: a packet that meets a rule loses its outer IP
// and GRE headers, everything else passes as it is. The software twin is kaido-gre, with the same rules and reasons.
//
//   s_axis ──▶ axis_window ──▶ shift, change ──▶ m_axis   what passes, stripped or not
//                │      ╰───────────────────────▶ host_axis   what the host must do, unchanged; tuser says why
//                ╰──▶ gre_parse, gre_sum ──▶ gre_match ──▶ gre_decide ─┘    gre_regs ◀── s_axil
//
// The first beat leaves WINDOW_BEATS + 1 clocks after it came in, or two more if PIPELINED, and one beat passes each clock. The
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
    // Registers between matching and deciding, and between the shift and the change: two clocks more, and a faster clock.
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
    // Stages of a frame's first beat: its beats are shifted from here, it is judged, matched, and read. Then it is the oldest of
    // the beats of the window, of which the newest comes in.
    localparam int unsigned SHIFTED = PIPELINED ? 1 : 0;
    localparam int unsigned JUDGED = SHIFTED + 1;
    localparam int unsigned MATCHED = PIPELINED ? JUDGED + 1 : JUDGED;
    localparam int unsigned PARSED = MATCHED + 1;
    localparam int unsigned DEPTH = PARSED + WINDOW_BEATS - 1;
    localparam int unsigned RULES = RULES_V4 + RULES_V6;
    // Words of outer headers that the window lets pass: 6 are IPv4 and GRE without options, 19 with all.
    localparam int unsigned OUTER_MIN = 6;
    localparam int unsigned OUTER_MAX = (WINDOW - 16) / 4 < 19 ? (WINDOW - 16) / 4 : 19;
    // The rest is shifted by steps of a power of two.
    localparam int unsigned STEPS = $clog2(OUTER_MAX - OUTER_MIN + 1);
    localparam int unsigned SPAN = OCTETS + 4 * (OUTER_MAX - OUTER_MIN);
    // Octets that go at least, and with an inner Ethernet header.
    localparam int unsigned SKIP = 4 * OUTER_MIN;
    localparam int unsigned ETHERNET = 14;

    initial begin
        assert (WINDOW_BEATS >= 2 && WINDOW >= 64);
        // The last beat of a packet is summed when the end of what was in its tunnel leaves.
        assert (WINDOW_BEATS <= PARSED);
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
        .front(beats[PARSED+1][255:0]), .layout_next, .window(beats[DEPTH:PARSED]), .layout,
        .length_max(policy.length_max), .fields(fields_read)
    );
    always_ff @(posedge clk) begin
        if (load[PARSED]) layout <= layout_next;
        if (load[PARSED-1] && first[PARSED]) fields <= fields_read;
    end

    // The checksum of GRE, of the frame up to and with the beat of each stage.
    wire logic [PARSED:0] sums_right;
    wire logic [15:0]     sum_total;
    gre_sum #(.DATA_W(DATA_W), .PARSED(PARSED)) checksum (
        .clk, .load(load[PARSED-1:0]), .is_first(first[PARSED]), .octets(data[PARSED]),
        .gre_at(layout.gre_at), .packet_end(fields_read.packet_end), .total(sum_total), .right(sums_right)
    );
    wire logic unused_sums = &{1'b0, sums_right, sum_total};

    // Matching, and what can be said without the rule.
    wire logic               whole;
    wire logic               whole_error;
    wire logic [COUNT_W-1:0] whole_length;
    axis_frame_end #(.DEPTH(WINDOW_BEATS), .COUNT_W(COUNT_W)) window_end (
        .valid(valid[DEPTH-1:MATCHED]), .last(last[DEPTH-1:MATCHED]), .user(user[DEPTH-1:MATCHED]),
        .count(count[DEPTH-1:MATCHED]), .is_known(whole), .has_error(whole_error), .length(whole_length)
    );
    wire logic unused_window = &{1'b0, whole_error, load, first, keep, data};

    wire facts_t             facts_found;
    wire facts_t             facts;
    wire logic [RULES-1:0]   met_found;
    wire logic [RULES-1:0]   met;
    wire action_t [RULES-1:0] actions_found;
    wire action_t [RULES-1:0] actions;
    for (genvar at = 0; at < RULES_V4; at++) begin : g_action_v4
        assign actions_found[at] = rules_v4[at].condition.action;
    end
    for (genvar at = 0; at < RULES_V6; at++) begin : g_action_v6
        assign actions_found[RULES_V4+at] = rules_v6[at].condition.action;
    end
    // The inner header's hop count and checksum may be in the beat behind the window: if the frame has one, it comes in now.
    gre_match #(.RULES_V4(RULES_V4), .RULES_V6(RULES_V6), .WINDOW(WINDOW), .BEHIND(OCTETS)) match (
        .fields, .is_whole(whole), .length(whole_length), .octets(beats[DEPTH:MATCHED]),
        .rules_v4, .rules_v6, .facts(facts_found), .met(met_found)
    );
    if (PIPELINED) begin : g_match
        facts_t              facts_kept;
        logic [RULES-1:0]    met_kept;
        // A rule may be written meanwhile: what it did when it was met holds.
        action_t [RULES-1:0] actions_kept;
        always_ff @(posedge clk) begin
            if (load[MATCHED-1] && first[MATCHED]) begin
                facts_kept   <= facts_found;
                met_kept     <= met_found;
                actions_kept <= actions_found;
            end
        end
        assign facts = facts_kept;
        assign met = met_kept;
        assign actions = actions_kept;
    end else begin : g_match
        assign facts = facts_found;
        assign met = met_found;
        assign actions = actions_found;
    end

    // Deciding: once, when the first beat leaves the stage. It holds for all beats of the frame.
    wire decision_t decision_made;
    decision_t      judged; // of the frame in SHIFTED
    // The first step of the shift, and how many words more.
    logic             skips;
    logic             skips_ethernet;
    logic [STEPS-1:0] words_more;
    gre_decide #(.RULES(RULES)) decide (.facts, .policy, .met, .actions, .decision(decision_made));
    wire logic strips_next = decision_made.verdict == VERDICT_STRIP;
    always_ff @(posedge clk) begin
        if (load[SHIFTED] && first[JUDGED]) begin
            judged         <= decision_made;
            skips          <= strips_next && !decision_made.ethernet;
            skips_ethernet <= strips_next && decision_made.ethernet;
            words_more     <= strips_next ? STEPS'(decision_made.outer_words - 5'(OUTER_MIN)) : '0;
        end
    end

    // Octets from the beat on that is to leave, without those that go. Behind its last beat stand those of another frame: of
    // them no octet leaves.
    wire logic is_head = (skips || skips_ethernet) && first[SHIFTED];
    wire logic [WINDOW_BEATS:0] is_same;
    for (genvar beat = 0; beat <= WINDOW_BEATS; beat++) begin : g_same
        if (beat == 0) begin : g_head
            assign is_same[beat] = 1'b1;
        end else begin : g_behind
            assign is_same[beat] = last[SHIFTED+beat-1:SHIFTED] == '0;
        end
    end
    wire logic [OCTETS*(WINDOW_BEATS+1)-1:0][7:0] ahead = beats[SHIFTED+WINDOW_BEATS:SHIFTED];
    // Behind the span there is nothing, which the largest step may reach.
    logic [STEPS:0][SPAN+2*2**STEPS-1:0][7:0] steps;
    logic [OCTETS-1:0][7:0]                   shifted;
    always_comb begin
        steps = '0;
        for (int unsigned at = 0; at < SPAN; at++) begin
            steps[STEPS][at] = (ahead[at+SKIP] & {8{skips && is_same[(at+SKIP)/OCTETS]}}) |
                (ahead[at+SKIP+ETHERNET] & {8{skips_ethernet && is_same[(at+SKIP+ETHERNET)/OCTETS]}});
            if (at < OCTETS) steps[STEPS][at] |= ahead[at] & {8{!skips && !skips_ethernet}};
        end
        for (int step = int'(STEPS) - 1; step >= 0; step--) begin
            for (int unsigned at = 0; at < SPAN; at++) begin
                steps[step][at] = words_more[step] ? steps[step+1][at+4*2**step] : steps[step+1][at];
            end
        end
        shifted = steps[0][OCTETS-1:0];
    end

    // The Ethernet header: the outer one with the type of what was in the tunnel; or, of an inner frame, its addresses, and the
    // outer tags behind them.
    wire logic [4:0] link_len = 5'd14 + {1'b0, judged.tags, 2'b00};
    logic [OCTETS-1:0][7:0] linked;
    always_comb begin
        linked = shifted;
        if (is_head && judged.ethernet) begin
            for (int unsigned at = 0; at < 12; at++) begin
                if (judged.tags == 2'd1) linked[at] = shifted[at+4];
                else if (judged.tags == 2'd2) linked[at] = shifted[at+8];
            end
            for (int unsigned at = 12; at < 20; at++) begin
                if (5'(at) < link_len - 5'd2) linked[at] = ahead[at];
            end
        end else if (is_head) begin
            for (int unsigned at = 0; at < 22; at++) begin
                if (5'(at) < link_len) linked[at] = ahead[at];
                if (5'(at) + 5'd2 == link_len) linked[at] = judged.protocol[15:8];
                if (5'(at) + 5'd1 == link_len) linked[at] = judged.protocol[7:0];
            end
        end
    end

    // The inner hop count, and what the inner checksum becomes before its carries are added.
    wire logic lowers = judged.ttl_uniform && judged.hops < judged.inner_hops;
    wire logic [7:0] hops_made = lowers ? judged.hops : judged.inner_hops;
    // ~old + new (RFC 1624 equation 3), of which the lower octet is 0xff; nothing if they are equal.
    wire logic [16:0] hops_delta = lowers ? {1'b0, ~judged.inner_hops, 8'hff} + {1'b0, judged.hops, 8'h00} : 17'd0;
    wire logic [18:0] sum_made = {3'd0, ~judged.inner_sum} + {3'd0, judged.tos_delta} + {2'd0, hops_delta};

    // Stage 0: what leaves now, and what is known of its frame.
    wire logic decided = load[0] && first[1];
    wire decision_t             decision_next; // of the frame that comes into stage 0
    wire decision_t             decision;
    wire logic [OCTETS-1:0][7:0] leaving;
    wire logic [7:0]            hops_new;
    wire logic [18:0]           sum_all;
    if (PIPELINED) begin : g_shift
        decision_t              decision_kept;
        logic [OCTETS-1:0][7:0] linked_kept;
        logic [7:0]             hops_kept;
        logic [18:0]            sum_kept;
        always_ff @(posedge clk) begin
            if (load[0]) linked_kept <= linked;
            if (decided) begin
                decision_kept <= judged;
                hops_kept     <= hops_made;
                sum_kept      <= sum_made;
            end
        end
        assign decision_next = judged;
        assign decision = decision_kept;
        assign leaving = linked_kept;
        assign hops_new = hops_kept;
        assign sum_all = sum_kept;
    end else begin : g_shift
        assign decision_next = decision_made;
        assign decision = judged;
        assign leaving = linked;
        assign hops_new = hops_made;
        assign sum_all = sum_made;
    end
    // Used as they are made.
    wire logic unused_decision = &{1'b0, decision, decision_next};

    logic               finished; // all of a stripped packet has left
    logic [COUNT_W-1:0] left;     // octets of it that have not

    wire logic               end_error;
    wire logic               end_known;
    wire logic [COUNT_W-1:0] end_length;
    axis_frame_end #(.DEPTH(DEPTH), .COUNT_W(COUNT_W)) head_end (
        .valid, .last, .user, .count, .is_known(end_known), .has_error(end_error), .length(end_length)
    );

    wire logic passes = decision.verdict == VERDICT_PASS;
    wire logic strips = decision.verdict == VERDICT_STRIP;
    wire logic hosts = decision.verdict == VERDICT_HOST;
    wire logic cut_short = decision.tunnel && end_known && end_length < decision.packet_end;
    // The end of the packet is in the stages that the window has, or before them, when the end of what was in the tunnel leaves.
    logic sum_right;
    logic goes_on;
    always_comb begin
        sum_right = sums_right[0];
        goes_on   = 1'b1;
        for (int unsigned at = 1; at <= WINDOW_BEATS; at++) begin
            goes_on = goes_on && !last[at-1];
            if (goes_on) sum_right = sums_right[at];
        end
    end
    wire logic wrong_sum = decision.has_sum && !sum_right;
    wire logic ends_out = strips ? left <= COUNT_W'(OCTETS) || last[0] : last[0];
    wire logic too_long = passes && end_length > policy.length_max;

    assign m_axis_tvalid = head_valid && (passes || (strips && !finished));
    assign host_axis_tvalid = head_valid && hosts;
    assign head_taken = head_valid &&
        (m_axis_tvalid ? m_axis_tready : host_axis_tvalid ? host_axis_tready : 1'b1);

    always_ff @(posedge clk) begin
        if (decided) begin
            finished <= 1'b0;
            left     <= decision_next.out_len;
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
    wire logic [16:0] sum_once = {1'b0, sum_all[15:0]} + {14'd0, sum_all[18:16]};
    wire logic [15:0] sum_new = ~(sum_once[15:0] + {15'd0, sum_once[16]});

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
                changed[14+4*tags+8] = hops_new;
            end
            if (changes && at_tags[tags] && is_v6) begin
                changed[14+4*tags][3:0] = decision.tos[7:4];
                changed[14+4*tags+1][7:4] = decision.tos[3:0];
                changed[14+4*tags+7] = hops_new;
            end
            // With two tags the checksum of IPv4 is behind the first 32 octets.
            if (strips && is_v4 && at_tags[tags] && (14 + 4 * tags + 10 < OCTETS ? first[0] : second)) begin
                changed[(14+4*tags+10)%OCTETS] = sum_new[15:8];
                changed[(14+4*tags+11)%OCTETS] = sum_new[7:0];
            end
        end
    end

    logic [OCTETS-1:0] keep_out;
    always_comb begin
        for (int unsigned at = 0; at < OCTETS; at++) begin
            keep_out[at] = strips ? left > COUNT_W'(at) : keep[0][at];
        end
    end

    assign m_axis_tdata = changed;
    assign m_axis_tkeep = keep_out;
    assign m_axis_tlast = ends_out;
    assign m_axis_tuser = ends_out && ((end_known && end_error) || cut_short || wrong_sum || too_long);

    // What is not stripped has not been shifted.
    assign host_axis_tdata = PIPELINED ? leaving : data[0];
    assign host_axis_tkeep = keep[0];
    assign host_axis_tlast = last[0];
    assign host_axis_tuser = {last[0] && user[0], decision.because};

    assign event_valid = head_taken && last[0];
    assign event_code = hosts ? decision.because : user[0] ? FRAME_ERROR : cut_short ? IP_MALFORMED :
        wrong_sum ? GRE_CHECKSUM : too_long ? TOO_BIG : decision.because;

    gre_regs #(.DATA_W(DATA_W), .RULES_V4(RULES_V4), .RULES_V6(RULES_V6)) regs (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid, .s_axil_wready,
        .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid, .s_axil_arready,
        .s_axil_rdata, .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
        .policy, .rules_v4, .rules_v6, .ready(running),
        .event_valid, .event_code,
        .event_matched(decision.matched && !user[0] && !cut_short && !wrong_sum),
        .event_rule(decision.rule),
        .event_octets(count[0])
    );
endmodule

`default_nettype wire
