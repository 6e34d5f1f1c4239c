// One AXI4-Lite for two slaves: addresses 0x800 to 0x8ff are of the table, all others of the registers. One access of a kind at a
// time. Both slaves take the address of a write with its data.

`default_nettype none

module axil_split (
    input  wire logic        clk,
    input  wire logic        rst,

    input  wire logic [11:0] s_awaddr,
    input  wire logic        s_awvalid,
    output wire logic        s_awready,
    input  wire logic        s_wvalid,
    output wire logic        s_wready,
    output wire logic [1:0]  s_bresp,
    output wire logic        s_bvalid,
    input  wire logic        s_bready,
    input  wire logic [11:0] s_araddr,
    input  wire logic        s_arvalid,
    output wire logic        s_arready,
    output wire logic [31:0] s_rdata,
    output wire logic [1:0]  s_rresp,
    output wire logic        s_rvalid,
    input  wire logic        s_rready,

    // By slave: 0 the registers, 1 the table. Addresses, data and strobes are those of the master.
    output wire logic [1:0]       m_wvalid,
    input  wire logic [1:0]       m_wready,
    input  wire logic [1:0][1:0]  m_bresp,
    input  wire logic [1:0]       m_bvalid,
    output wire logic             m_bready,
    output wire logic [1:0]       m_arvalid,
    input  wire logic [1:0]       m_arready,
    input  wire logic [1:0][31:0] m_rdata,
    input  wire logic [1:0][1:0]  m_rresp,
    input  wire logic [1:0]       m_rvalid,
    output wire logic             m_rready
);
    function automatic logic is_table(input logic [3:0] page);
        return page == 4'h8;
    endfunction

    // A write waits while an answer of the other slave does: answers keep their order.
    wire logic write_table = is_table(s_awaddr[11:8]);
    wire logic write = s_awvalid && s_wvalid && m_bvalid == '0;
    assign m_wvalid = {write && write_table, write && !write_table};
    assign s_awready = |(m_wvalid & m_wready);
    assign s_wready = s_awready;
    assign s_bvalid = |m_bvalid;
    assign s_bresp = m_bvalid[1] ? m_bresp[1] : m_bresp[0];
    assign m_bready = s_bready;

    logic reading;
    wire logic read_table = is_table(s_araddr[11:8]);
    wire logic read = s_arvalid && !reading;
    assign m_arvalid = {read && read_table, read && !read_table};
    assign s_arready = |(m_arvalid & m_arready);
    assign s_rvalid = |m_rvalid;
    assign s_rresp = m_rvalid[1] ? m_rresp[1] : m_rresp[0];
    assign s_rdata = m_rvalid[1] ? m_rdata[1] : m_rdata[0];
    assign m_rready = s_rready;
    wire logic unused_address = &{1'b0, s_awaddr[7:0], s_araddr[7:0]};

    always_ff @(posedge clk) begin
        if (s_arready) reading <= 1'b1;
        else if (s_rvalid && s_rready) reading <= 1'b0;
        if (rst) reading <= 1'b0;
    end
endmodule

`default_nettype wire
