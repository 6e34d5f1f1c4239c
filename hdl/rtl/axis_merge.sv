// Streams of frames in one: a frame leaves whole before another begins, and who waits is asked in turn.
//
//   s_axis[0] ──┐
//   s_axis[1] ──┼─▶ m_axis, source
//   s_axis[n] ──┘
//
// No clock is added. Once a frame's first beat is shown, no other is chosen until its last has been taken: a beat on m_axis stays as it
// is until then (AXI4-Stream 2.2.1).

`default_nettype none

module axis_merge #(
    parameter int unsigned DATA_W = 256,
    parameter int unsigned USER_W = 1,
    parameter int unsigned SOURCES = 2,
    localparam int unsigned SOURCE_W = SOURCES > 1 ? $clog2(SOURCES) : 1
) (
    input  wire logic                             clk,
    input  wire logic                             rst,

    input  wire logic [SOURCES-1:0][DATA_W-1:0]   s_axis_tdata,
    input  wire logic [SOURCES-1:0][DATA_W/8-1:0] s_axis_tkeep,
    input  wire logic [SOURCES-1:0]               s_axis_tlast,
    input  wire logic [SOURCES-1:0][USER_W-1:0]   s_axis_tuser,
    input  wire logic [SOURCES-1:0]               s_axis_tvalid,
    output wire logic [SOURCES-1:0]               s_axis_tready,

    output wire logic [DATA_W-1:0]                m_axis_tdata,
    output wire logic [DATA_W/8-1:0]              m_axis_tkeep,
    output wire logic                             m_axis_tlast,
    output wire logic [USER_W-1:0]                m_axis_tuser,
    output wire logic                             m_axis_tvalid,
    input  wire logic                             m_axis_tready,
    // Whose beat it is.
    output wire logic [SOURCE_W-1:0]              source
);
    // The source of the last beat that was shown; its frame has not ended.
    logic [SOURCE_W-1:0] chosen;
    logic                is_open;

    // The first source that has a beat, from the one after `chosen` on; `chosen` is the last.
    logic [SOURCE_W-1:0] turn;
    always_comb begin
        turn = chosen;
        for (int at = int'(SOURCES) - 1; at >= 0; at--) begin
            if (s_axis_tvalid[at] && SOURCE_W'(at) <= chosen) turn = SOURCE_W'(at);
        end
        for (int at = int'(SOURCES) - 1; at >= 0; at--) begin
            if (s_axis_tvalid[at] && SOURCE_W'(at) > chosen) turn = SOURCE_W'(at);
        end
    end

    assign source = is_open ? chosen : turn;
    assign m_axis_tdata = s_axis_tdata[source];
    assign m_axis_tkeep = s_axis_tkeep[source];
    assign m_axis_tlast = s_axis_tlast[source];
    assign m_axis_tuser = s_axis_tuser[source];
    assign m_axis_tvalid = s_axis_tvalid[source];
    for (genvar at = 0; at < SOURCES; at++) begin : g_ready
        assign s_axis_tready[at] = m_axis_tready && source == SOURCE_W'(at);
    end

    always_ff @(posedge clk) begin
        if (m_axis_tvalid) begin
            chosen  <= source;
            is_open <= !(m_axis_tready && m_axis_tlast);
        end
        if (rst) begin
            chosen  <= '0;
            is_open <= 1'b0;
        end
    end
endmodule

`default_nettype wire
