// GRE header removal (RFC 2784, RFC 2890) on an AXI4-Stream of Ethernet frames: a packet that meets a rule loses its outer IP
// and GRE headers, everything else passes as it is. The software twin is kaido-gre, with the same rules and reasons.
//
//   s_axis ──▶ axis_window ──▶ shift, change ──▶ m_axis   what passes, stripped or not
//                │      ╰───────────────────────▶ host_axis   what the host must do, unchanged; tuser says why
//                ╰──▶ gre_parse ──▶ gre_decide ─┘    gre_regs ◀── s_axil
//
// The first beat leaves WINDOW_BEATS + PARSE_CLOCKS clocks after it came in, and one beat passes each clock. The core reads the
// headers that lie in the first WINDOW_BEATS beats. What turns out at the end of a frame whose first beat has left, a frame
// shorter than its IP header says or longer than may leave, sets m_axis_tuser with tlast: who takes the frame drops it.
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
    // 2 puts a register between reading and deciding: a clock more, and a faster clock.
    parameter int unsigned PARSE_CLOCKS = 1
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
    localparam int unsigned DEPTH = WINDOW_BEATS + PARSE_CLOCKS;
    // The stage of a frame's first beat when it is read: WINDOW_BEATS stages from here on are the window.
    localparam int unsigned PARSED = PARSE_CLOCKS;
    // Words of outer headers that the window lets pass: 6 are IPv4 and GRE without options, 18 with all.
    localparam int unsigned OUTER_MIN = 6;
    localparam int unsigned OUTER_MAX = (WINDOW - 16) / 4 < 18 ? (WINDOW - 16) / 4 : 18;
    localparam int unsigned SHIFTS = OUTER_MAX - OUTER_MIN + 1;
    // Octets that are shifted: a beat and, at most, all that goes; and those that an inner Ethernet header takes off first.
    localparam int unsigned SPAN = OCTETS + 4 * OUTER_MAX;
    localparam int unsigned ETHERNET = 14;

    initial begin
        assert (PARSE_CLOCKS == 1 || PARSE_CLOCKS == 2);
        assert (WINDOW_BEATS >= 2 && WINDOW >= 64 && SPAN + ETHERNET <= OCTETS * (WINDOW_BEATS + 1));
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

    // Reading.
    wire logic [WINDOW-1:0][7:0] window = data[DEPTH-1:PARSED];
    wire logic                   parsed_error;
    wire logic                   parsed_whole;
    wire logic [COUNT_W-1:0]     parsed_length;
    axis_frame_end #(.DEPTH(WINDOW_BEATS), .COUNT_W(COUNT_W)) parsed_end (
        .valid(valid[DEPTH-1:PARSED]), .last(last[DEPTH-1:PARSED]), .user(user[DEPTH-1:PARSED]),
        .count(count[DEPTH-1:PARSED]), .is_known(parsed_whole), .has_error(parsed_error), .length(parsed_length)
    );
    wire logic unused_error = &{1'b0, parsed_error, load, first, keep};

    wire fields_t fields_read;
    gre_parse #(.WINDOW(WINDOW)) parse (
        .window, .is_whole(parsed_whole), .length(parsed_length), .fields(fields_read)
    );

    wire fields_t fields;
    if (PARSE_CLOCKS == 2) begin : g_read
        fields_t fields_kept;
        always_ff @(posedge clk) begin
            if (load[1] && first[2]) fields_kept <= fields_read;
        end
        assign fields = fields_kept;
    end else begin : g_straight
        assign fields = fields_read;
    end

    // Deciding: once, when the first beat comes into stage 0. It holds for all beats of the frame.
    wire decision_t decision_made;
    decision_t      decision;
    // These two are used as they are made.
    wire logic unused_decision = &{1'b0, decision.out_len, decision.outer_words};
    // What of the shifts it is, one bit each.
    logic [SHIFTS-1:0] shifts;
    gre_decide #(.RULES_V4(RULES_V4), .RULES_V6(RULES_V6), .WINDOW(WINDOW)) decide (
        .fields, .policy, .rules_v4, .rules_v6, .decision(decision_made)
    );
    wire logic decided = load[0] && first[1];
    always_ff @(posedge clk) begin
        if (decided) begin
            decision <= decision_made;
            for (int unsigned at = 0; at < SHIFTS; at++) begin
                shifts[at] <= decision_made.verdict == VERDICT_STRIP &&
                    decision_made.outer_words == 5'(at + OUTER_MIN);
            end
        end
    end

    // The frame in stage 0.
    logic               finished; // all of a stripped packet has left
    logic [COUNT_W-1:0] left;     // octets of it that have not
    logic [16:0]        carried;  // what the inner checksum gains by the hop count

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
    wire logic ends_out = strips ? left <= COUNT_W'(OCTETS) || last[0] : last[0];
    wire logic too_long = passes && end_length > policy.length_max;

    assign m_axis_tvalid = head_valid && (passes || (strips && !finished));
    assign host_axis_tvalid = head_valid && hosts;
    assign head_taken = head_valid &&
        (m_axis_tvalid ? m_axis_tready : host_axis_tvalid ? host_axis_tready : 1'b1);

    always_ff @(posedge clk) begin
        if (decided) begin
            finished <= 1'b0;
            left     <= decision_made.out_len;
        end else if (m_axis_tvalid && m_axis_tready) begin
            finished <= ends_out;
            left     <= left - COUNT_W'(OCTETS);
        end
    end

    // Octets from the beat in stage 0 on, without an inner Ethernet header.
    // Behind its last beat stand those of another frame: of them no octet leaves.
    wire logic [WINDOW_BEATS:0] is_same;
    wire logic [OCTETS*(WINDOW_BEATS+1)-1:0][7:0] ahead;
    for (genvar beat = 0; beat <= WINDOW_BEATS; beat++) begin : g_ahead
        if (beat == 0) begin : g_head
            assign is_same[beat] = 1'b1;
        end else begin : g_behind
            assign is_same[beat] = last[beat-1:0] == '0;
        end
        assign ahead[OCTETS*beat+:OCTETS] = is_same[beat] ? data[beat] : '0;
    end
    wire logic [SPAN-1:0][7:0] based;
    for (genvar at = 0; at < SPAN; at++) begin : g_base
        assign based[at] = decision.ethernet ? ahead[at+ETHERNET] : ahead[at];
    end
    logic [OCTETS-1:0][7:0] shifted;
    always_comb begin
        for (int unsigned at = 0; at < OCTETS; at++) begin
            shifted[at] = strips ? 8'd0 : ahead[at];
            for (int unsigned shift = 0; shift < SHIFTS; shift++) begin
                if (shifts[shift]) shifted[at] |= based[at+4*(shift+OUTER_MIN)];
            end
        end
    end

    // The Ethernet header: the outer one with the type of what was in the tunnel; or, of an inner frame, its addresses, and the
    // outer tags behind them.
    wire logic [4:0] link_len = 5'd14 + {1'b0, decision.tags, 2'b00};
    wire logic is_head = strips && first[0];
    logic [OCTETS-1:0][7:0] linked;
    always_comb begin
        linked = shifted;
        if (is_head && decision.ethernet) begin
            for (int unsigned at = 0; at < 12; at++) begin
                if (decision.tags == 2'd1) linked[at] = shifted[at+4];
                else if (decision.tags == 2'd2) linked[at] = shifted[at+8];
            end
            for (int unsigned at = 12; at < 20; at++) begin
                if (5'(at) < link_len - 5'd2) linked[at] = ahead[at];
            end
        end else if (is_head) begin
            for (int unsigned at = 0; at < 22; at++) begin
                if (5'(at) < link_len) linked[at] = ahead[at];
                if (5'(at) + 5'd2 == link_len) linked[at] = decision.protocol[15:8];
                if (5'(at) + 5'd1 == link_len) linked[at] = decision.protocol[7:0];
            end
        end
    end

    // The inner packet: class of service, hop count, checksum, at three places.
    wire logic [2:0] at_tags = {decision.tags == 2'd2, decision.tags == 2'd1, decision.tags == 2'd0};
    wire logic is_v4 = decision.change == CHANGE_V4;
    wire logic is_v6 = decision.change == CHANGE_V6;
    logic [7:0]  hops_old;
    logic [15:0] sum_old;
    always_comb begin
        hops_old = '0;
        sum_old  = '0;
        for (int unsigned tags = 0; tags < 3; tags++) begin
            if (at_tags[tags]) begin
                hops_old |= is_v4 ? shifted[14+4*tags+8] : shifted[14+4*tags+7];
                // With two tags the checksum of IPv4 is behind the first 32 octets.
                for (int unsigned octet = 0; octet < 2; octet++) begin
                    sum_old[8*(1-octet)+:8] |= shifted[(14+4*tags+10+octet)%OCTETS];
                end
            end
        end
    end
    wire logic lowers = decision.ttl_uniform && decision.hops < hops_old;
    wire logic [7:0] hops_new = lowers ? decision.hops : hops_old;
    // ~old + new (RFC 1624 equation 3), of which the lower octet is 0xff; nothing if they are equal.
    wire logic [16:0] hops_delta = lowers ? {1'b0, ~hops_old, 8'hff} + {1'b0, decision.hops, 8'h00} : 17'd0;
    wire logic sum_is_next = OCTETS == 32 && decision.tags == 2'd2;
    wire logic [18:0] sum_all = {3'd0, ~sum_old} + {3'd0, decision.tos_delta} + {2'd0, sum_is_next ? carried : hops_delta};
    wire logic [16:0] sum_once = {1'b0, sum_all[15:0]} + {14'd0, sum_all[18:16]};
    wire logic [15:0] sum_new = ~(sum_once[15:0] + {15'd0, sum_once[16]});

    logic second; // the beat in stage 0 is the second of its frame
    always_ff @(posedge clk) begin
        if (head_taken) begin
            second  <= first[0] && !last[0];
            carried <= hops_delta;
        end
    end

    logic [OCTETS-1:0][7:0] changed;
    always_comb begin
        changed = linked;
        for (int unsigned tags = 0; tags < 3; tags++) begin
            if (is_head && at_tags[tags] && is_v4) begin
                changed[14+4*tags+1] = decision.tos;
                changed[14+4*tags+8] = hops_new;
            end
            if (is_head && at_tags[tags] && is_v6) begin
                changed[14+4*tags][3:0] = decision.tos[7:4];
                changed[14+4*tags+1][7:4] = decision.tos[3:0];
                changed[14+4*tags+7] = hops_new;
            end
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
    assign m_axis_tuser = ends_out && ((end_known && end_error) || cut_short || too_long);

    assign host_axis_tdata = data[0];
    assign host_axis_tkeep = keep[0];
    assign host_axis_tlast = last[0];
    assign host_axis_tuser = {last[0] && user[0], decision.because};

    assign event_valid = head_taken && last[0];
    assign event_code = hosts ? decision.because : user[0] ? FRAME_ERROR : cut_short ? IP_MALFORMED :
        too_long ? TOO_BIG : decision.because;

    gre_regs #(.DATA_W(DATA_W), .RULES_V4(RULES_V4), .RULES_V6(RULES_V6)) regs (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid, .s_axil_wready,
        .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid, .s_axil_arready,
        .s_axil_rdata, .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
        .policy, .rules_v4, .rules_v6, .ready(running),
        .event_valid, .event_code,
        .event_matched(decision.matched && !user[0] && !cut_short),
        .event_rule(decision.rule),
        .event_octets(count[0])
    );
endmodule

`default_nettype wire
