// The core between registers and few pins, so that it fits a package and every path to be timed is from register to register. The
// inputs come out of a shift register, and the outputs go into one.

`default_nettype none

module gre_decap_harness #(
    parameter int unsigned DATA_W = 256,
    parameter int unsigned RULES_V4 = 16,
    parameter int unsigned RULES_V6 = 4,
    parameter int unsigned WINDOW_BEATS = 2,
    parameter bit          PIPELINED = 1'b0
) (
    input  wire logic clk,
    input  wire logic rst,
    input  wire logic shift_in,
    output wire logic shift_out
);
    localparam int unsigned KEEP_W = DATA_W / 8;
    localparam int unsigned IN_W = DATA_W + KEEP_W + 3 + 2 + 12 + 1 + 32 + 4 + 1 + 1 + 12 + 1 + 1;
    localparam int unsigned OUT_W = 2 * (DATA_W + KEEP_W + 2) + 7 + 1 + 6 + 5 + 32 + 4 + 3;

    logic [IN_W-1:0] in;
    logic            reset;
    always_ff @(posedge clk) begin
        in    <= {in[IN_W-2:0], shift_in};
        reset <= rst;
    end

    wire logic [OUT_W-1:0] out;
    logic [OUT_W-1:0]      kept;
    logic [OUT_W-1:0]      shifted;
    always_ff @(posedge clk) begin
        kept    <= out;
        shifted <= shift_in ? kept : {shifted[OUT_W-2:0], 1'b0};
    end
    assign shift_out = shifted[OUT_W-1];

    wire logic [DATA_W-1:0] s_axis_tdata;
    wire logic [KEEP_W-1:0] s_axis_tkeep;
    wire logic s_axis_tlast, s_axis_tuser, s_axis_tvalid, m_axis_tready, host_axis_tready;
    wire logic [11:0] s_axil_awaddr, s_axil_araddr;
    wire logic [31:0] s_axil_wdata;
    wire logic [3:0] s_axil_wstrb;
    wire logic s_axil_awvalid, s_axil_wvalid, s_axil_bready, s_axil_arvalid, s_axil_rready;
    assign {s_axis_tdata, s_axis_tkeep, s_axis_tlast, s_axis_tuser, s_axis_tvalid, m_axis_tready, host_axis_tready,
        s_axil_awaddr, s_axil_awvalid, s_axil_wdata, s_axil_wstrb, s_axil_wvalid, s_axil_bready, s_axil_araddr,
        s_axil_arvalid, s_axil_rready} = in;

    wire logic [DATA_W-1:0] m_axis_tdata, host_axis_tdata;
    wire logic [KEEP_W-1:0] m_axis_tkeep, host_axis_tkeep;
    wire logic m_axis_tlast, m_axis_tuser, m_axis_tvalid, host_axis_tlast, host_axis_tvalid, s_axis_tready;
    wire logic [5:0] host_axis_tuser;
    wire logic event_valid, s_axil_awready, s_axil_wready, s_axil_bvalid, s_axil_arready, s_axil_rvalid;
    wire gre_pkg::event_t event_code;
    wire logic [1:0] s_axil_bresp, s_axil_rresp;
    wire logic [31:0] s_axil_rdata;
    assign out = OUT_W'({m_axis_tdata, m_axis_tkeep, m_axis_tlast, m_axis_tuser, m_axis_tvalid, host_axis_tdata,
        host_axis_tkeep, host_axis_tlast, host_axis_tvalid, host_axis_tuser, s_axis_tready, event_valid, event_code,
        s_axil_awready, s_axil_wready, s_axil_bvalid, s_axil_arready, s_axil_rvalid, s_axil_bresp, s_axil_rresp,
        s_axil_rdata});

    gre_decap #(
        .DATA_W(DATA_W), .RULES_V4(RULES_V4), .RULES_V6(RULES_V6), .WINDOW_BEATS(WINDOW_BEATS), .PIPELINED(PIPELINED)
    ) core (.rst(reset), .*);
endmodule

`default_nettype wire
