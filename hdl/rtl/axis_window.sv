// The next beats of an AXI4-Stream side by side: what a core needs that reads headers over several beats and shifts octets
// between them.
//
//   s_axis ──▶ stage DEPTH-1 ──▶ … ──▶ stage 1 ──▶ stage 0 ──▶ the core (head_valid, head_taken)
//
// A beat takes one clock a stage. Beats of one packet are always in neighbouring stages: a beat moves on when the next of its
// packet comes in behind it. So a gap in the middle of a packet stops that packet and no other, and all stages that hold a
// packet's beats can be read as one word. Behind the last beat of a packet may stand any other packet, or nothing.
//
// tkeep is contiguous from octet 0 and full but in the last beat of a packet.

`default_nettype none

module axis_window #(
    parameter int unsigned DATA_W = 256,
    parameter int unsigned DEPTH = 3,
    // Bits of the count of octets; it stays at its highest value.
    parameter int unsigned COUNT_W = 17
) (
    input  wire logic                           clk,
    input  wire logic                           rst,

    input  wire logic [DATA_W-1:0]              s_axis_tdata,
    input  wire logic [DATA_W/8-1:0]            s_axis_tkeep,
    input  wire logic                           s_axis_tlast,
    input  wire logic                           s_axis_tuser,
    input  wire logic                           s_axis_tvalid,
    output wire logic                           s_axis_tready,

    // The beat in stage 0 has not been taken yet.
    output wire logic                           head_valid,
    // It is taken now.
    input  wire logic                           head_taken,

    // By stage. `load` says that a beat comes into it at the end of this clock.
    output wire logic [DEPTH-1:0]               valid,
    output wire logic [DEPTH-1:0]               load,
    output wire logic [DEPTH-1:0][DATA_W-1:0]   data,
    output wire logic [DEPTH-1:0][DATA_W/8-1:0] keep,
    output wire logic [DEPTH-1:0]               first,
    output wire logic [DEPTH-1:0]               last,
    output wire logic [DEPTH-1:0]               user,
    // Octets of the packet up to the end of this beat.
    output wire logic [DEPTH-1:0][COUNT_W-1:0]  count
);
    localparam int unsigned KEEP_W = DATA_W / 8;

    typedef struct packed {
        logic [DATA_W-1:0]  data;
        logic [KEEP_W-1:0]  keep;
        logic               first;
        logic               last;
        logic               user;
        logic [COUNT_W-1:0] count;
    } beat_t;

    // Octets of a beat.
    function automatic logic [COUNT_W-1:0] octets(input logic [KEEP_W-1:0] kept);
        octets = '0;
        // One octet is the last.
        for (int unsigned at = 0; at < KEEP_W; at++) begin
            if (kept[at] && (at == KEEP_W - 1 || !kept[(at+1)%KEEP_W])) octets |= COUNT_W'(at + 1);
        end
    endfunction

    beat_t [DEPTH-1:0]  beats;
    logic  [DEPTH-1:0]  beat_valid;
    // The beat in stage 0 was taken and waits for the next of its packet.
    logic               gone;
    logic               next_is_first;
    logic [COUNT_W-1:0] counted;

    // A beat of a packet whose next beat has not come.
    wire logic [DEPTH-1:0] held;
    // A stage that is empty, or whose beat can leave it.
    wire logic [DEPTH-1:0] open;

    // Its packet goes on behind it.
    wire logic [DEPTH-1:0] unfinished;

    wire logic head_open = !beat_valid[0] || gone || head_taken;

    assign s_axis_tready = open[DEPTH-1];
    assign head_valid = beat_valid[0] && !gone;
    assign valid = beat_valid;

    wire logic [COUNT_W:0] sum = {1'b0, counted} + {1'b0, octets(s_axis_tkeep)};
    wire logic [COUNT_W-1:0] sum_bounded = sum[COUNT_W] ? '1 : sum[COUNT_W-1:0];

    for (genvar at = 0; at < DEPTH; at++) begin : g_stage
        wire logic comes;
        beat_t     beat;

        if (at == DEPTH - 1) begin : g_newest
            assign comes = s_axis_tvalid;
            assign beat = '{
                data: s_axis_tdata,
                keep: s_axis_tkeep,
                first: next_is_first,
                last: s_axis_tlast,
                user: s_axis_tuser,
                count: sum_bounded
            };
        end else begin : g_older
            assign comes = beat_valid[at+1] && !held[at+1];
            assign beat = beats[at+1];
        end

        assign unfinished[at] = beat_valid[at] && !beats[at].last;
        assign held[at] = (&unfinished[DEPTH-1:at]) && !s_axis_tvalid;
        if (at == 0) begin : g_head
            assign open[at] = head_open;
        end else begin : g_behind
            assign open[at] = head_open || !(&beat_valid[at:1]);
        end

        wire logic moves = open[at] && !held[at];
        assign load[at] = moves && comes;

        always_ff @(posedge clk) begin
            if (moves) beats[at] <= beat;
            if (rst) beat_valid[at] <= 1'b0;
            else if (moves) beat_valid[at] <= comes;
        end

        assign data[at] = beats[at].data;
        assign keep[at] = beats[at].keep;
        assign first[at] = beats[at].first;
        assign last[at] = beats[at].last;
        assign user[at] = beats[at].user;
        assign count[at] = beats[at].count;
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            gone          <= 1'b0;
            next_is_first <= 1'b1;
            counted       <= '0;
        end else begin
            gone <= held[0] && (gone || head_taken);
            if (s_axis_tvalid && s_axis_tready) begin
                next_is_first <= s_axis_tlast;
                counted       <= s_axis_tlast ? '0 : sum_bounded;
            end
        end
    end
endmodule

`default_nettype wire
