// A register for the ready wire of an AXI4-Stream: no combinational path from m_axis_tready to s_axis_tready.
//
//   s_axis ──┬──────────────▶ m_axis      a beat that m_axis takes at once goes straight through: no clock is added
//            └─▶ [ spare ] ──▶            one that it does not take waits in the spare register, and ready goes low
//
// With OUTPUT_REGISTER the beat is registered too: one clock is added and no path is combinational in either direction.
// Either way one beat passes each clock. A beat on m_axis stays as it is until it is taken (AXI4-Stream 2.2.1).

`default_nettype none

module axis_skid #(
    parameter int unsigned DATA_W = 256,
    parameter int unsigned USER_W = 1,
    parameter bit OUTPUT_REGISTER = 1'b0
) (
    input  wire logic                clk,
    input  wire logic                rst,

    input  wire logic [DATA_W-1:0]   s_axis_tdata,
    input  wire logic [DATA_W/8-1:0] s_axis_tkeep,
    input  wire logic                s_axis_tlast,
    input  wire logic [USER_W-1:0]   s_axis_tuser,
    input  wire logic                s_axis_tvalid,
    output wire logic                s_axis_tready,

    output wire logic [DATA_W-1:0]   m_axis_tdata,
    output wire logic [DATA_W/8-1:0] m_axis_tkeep,
    output wire logic                m_axis_tlast,
    output wire logic [USER_W-1:0]   m_axis_tuser,
    output wire logic                m_axis_tvalid,
    input  wire logic                m_axis_tready
);
    localparam int unsigned BEAT_W = DATA_W + DATA_W / 8 + 1 + USER_W;

    wire logic [BEAT_W-1:0] beat_in = {s_axis_tuser, s_axis_tlast, s_axis_tkeep, s_axis_tdata};
    logic [BEAT_W-1:0] spare;
    logic              spare_valid;
    // Low in reset, so that no beat is taken that reset would lose.
    logic              ready;

    // What comes next: the spare beat first.
    wire logic [BEAT_W-1:0] next = spare_valid ? spare : beat_in;
    wire logic              next_valid = spare_valid || (s_axis_tvalid && ready);
    wire logic              next_taken;

    assign s_axis_tready = ready;

    always_ff @(posedge clk) begin
        if (ready) spare <= beat_in;
        if (rst) begin
            spare_valid <= 1'b0;
            ready       <= 1'b0;
        end else begin
            spare_valid <= next_valid && !next_taken;
            ready       <= !next_valid || next_taken;
        end
    end

    if (OUTPUT_REGISTER) begin : g_registered
        logic [BEAT_W-1:0] beat_out;
        logic              out_valid;

        assign next_taken = !out_valid || m_axis_tready;
        assign m_axis_tvalid = out_valid;
        assign {m_axis_tuser, m_axis_tlast, m_axis_tkeep, m_axis_tdata} = beat_out;

        always_ff @(posedge clk) begin
            if (next_taken) beat_out <= next;
            if (rst) out_valid <= 1'b0;
            else if (next_taken) out_valid <= next_valid;
        end
    end else begin : g_straight
        assign next_taken = m_axis_tready;
        assign m_axis_tvalid = next_valid;
        assign {m_axis_tuser, m_axis_tlast, m_axis_tkeep, m_axis_tdata} = next;
    end
endmodule

`default_nettype wire
