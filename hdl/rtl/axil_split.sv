// One AXI4-Lite for several slaves: who uses it says by the address which of them an access is for. One access of a kind at a time.
// All slaves take the address of a write with its data.

`default_nettype none

module axil_split #(
    parameter int unsigned SLAVES = 2
) (
    input  wire logic        clk,
    input  wire logic        rst,

    input  wire logic        s_awvalid,
    output wire logic        s_awready,
    input  wire logic        s_wvalid,
    output wire logic        s_wready,
    output wire logic [1:0]  s_bresp,
    output wire logic        s_bvalid,
    input  wire logic        s_bready,
    input  wire logic        s_arvalid,
    output wire logic        s_arready,
    output wire logic [31:0] s_rdata,
    output wire logic [1:0]  s_rresp,
    output wire logic        s_rvalid,
    input  wire logic        s_rready,

    // Which slave the addresses are of, one bit each.
    input  wire logic [SLAVES-1:0] write_to,
    input  wire logic [SLAVES-1:0] read_to,

    // By slave. Addresses, data and strobes are those of the master.
    output wire logic [SLAVES-1:0]       m_wvalid,
    input  wire logic [SLAVES-1:0]       m_wready,
    input  wire logic [SLAVES-1:0][1:0]  m_bresp,
    input  wire logic [SLAVES-1:0]       m_bvalid,
    output wire logic                    m_bready,
    output wire logic [SLAVES-1:0]       m_arvalid,
    input  wire logic [SLAVES-1:0]       m_arready,
    input  wire logic [SLAVES-1:0][31:0] m_rdata,
    input  wire logic [SLAVES-1:0][1:0]  m_rresp,
    input  wire logic [SLAVES-1:0]       m_rvalid,
    output wire logic                    m_rready
);
    // A write waits while an answer of another slave does: answers keep their order.
    wire logic write = s_awvalid && s_wvalid && m_bvalid == '0;
    assign m_wvalid = write ? write_to : '0;
    assign s_awready = |(m_wvalid & m_wready);
    assign s_wready = s_awready;
    assign s_bvalid = |m_bvalid;
    assign m_bready = s_bready;

    logic reading;
    assign m_arvalid = s_arvalid && !reading ? read_to : '0;
    assign s_arready = |(m_arvalid & m_arready);
    assign s_rvalid = |m_rvalid;
    assign m_rready = s_rready;

    // One slave answers at a time.
    logic [1:0]  bresp;
    logic [1:0]  rresp;
    logic [31:0] rdata;
    always_comb begin
        {bresp, rresp, rdata} = '0;
        for (int unsigned at = 0; at < SLAVES; at++) begin
            if (m_bvalid[at]) bresp |= m_bresp[at];
            if (m_rvalid[at]) {rresp, rdata} |= {m_rresp[at], m_rdata[at]};
        end
    end
    assign s_bresp = bresp;
    assign s_rresp = rresp;
    assign s_rdata = rdata;

    always_ff @(posedge clk) begin
        if (s_arready) reading <= 1'b1;
        else if (s_rvalid && s_rready) reading <= 1'b0;
        if (rst) reading <= 1'b0;
    end
endmodule

`default_nettype wire
