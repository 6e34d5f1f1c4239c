// A buffer of whole frames that never makes the stream before it wait: a frame that it has no room for is dropped whole, and told.
//
//   s_axis ──▶ memory ──▶ m_axis
//                ╰── a frame is given on when its last beat is there
//
// A frame longer than the memory is always dropped. The first beat leaves two clocks after the last came in, and then one each clock.

`default_nettype none

module axis_frame_fifo #(
    parameter int unsigned DATA_W = 256,
    parameter int unsigned USER_W = 1,
    // log2 of the beats that it holds.
    parameter int unsigned BEATS_W = 9
) (
    input  wire logic                clk,
    input  wire logic                rst,

    // Always ready.
    input  wire logic [DATA_W-1:0]   s_axis_tdata,
    input  wire logic [DATA_W/8-1:0] s_axis_tkeep,
    input  wire logic                s_axis_tlast,
    input  wire logic [USER_W-1:0]   s_axis_tuser,
    input  wire logic                s_axis_tvalid,

    output wire logic [DATA_W-1:0]   m_axis_tdata,
    output wire logic [DATA_W/8-1:0] m_axis_tkeep,
    output wire logic                m_axis_tlast,
    output wire logic [USER_W-1:0]   m_axis_tuser,
    output wire logic                m_axis_tvalid,
    input  wire logic                m_axis_tready,

    // A frame has ended: it was taken, or dropped.
    output wire logic                frame_taken,
    output wire logic                frame_dropped
);
    localparam int unsigned BEAT_W = DATA_W + DATA_W / 8 + 1 + USER_W;

    // Positions count on, so that full and empty differ.
    logic [BEATS_W:0] written;  // behind the last beat of the frame that comes in
    logic [BEATS_W:0] whole;    // behind the last beat of the last whole frame
    logic [BEATS_W:0] read;     // the beat that leaves next
    logic             drops;    // of the frame that comes in a beat had no room

    wire logic [BEATS_W:0] used = written - read;
    wire logic room = !used[BEATS_W] && !drops;
    wire logic stores = s_axis_tvalid && room;
    wire logic ends = s_axis_tvalid && s_axis_tlast;
    assign frame_taken = ends && room;
    assign frame_dropped = ends && !room;

    always_ff @(posedge clk) begin
        if (stores) written <= written + 1'b1;
        if (s_axis_tvalid) drops <= !room && !s_axis_tlast;
        if (frame_taken) whole <= written + 1'b1;
        // The beats of a frame that is dropped give their room back.
        if (s_axis_tvalid && !room) written <= whole;
        if (rst) begin
            written <= '0;
            whole   <= '0;
            drops   <= 1'b0;
        end
    end

    // What is read was written a clock before or earlier: memory gives no defined word where a read meets a write.
    logic shown;
    wire logic leaves = shown && m_axis_tready;
    wire logic [BEATS_W:0] next = read + (BEATS_W + 1)'(leaves);
    always_ff @(posedge clk) begin
        read  <= next;
        shown <= next != whole;
        if (rst) begin
            read  <= '0;
            shown <= 1'b0;
        end
    end

    wire logic [BEAT_W-1:0] beat;
    em_ram_sdp #(.W(BEAT_W), .AW(BEATS_W)) beats (
        .clk, .raddr(next[BEATS_W-1:0]), .q(beat), .we(stores), .waddr(written[BEATS_W-1:0]),
        .d({s_axis_tuser, s_axis_tlast, s_axis_tkeep, s_axis_tdata})
    );
    assign {m_axis_tuser, m_axis_tlast, m_axis_tkeep, m_axis_tdata} = beat;
    assign m_axis_tvalid = shown;
endmodule

`default_nettype wire
