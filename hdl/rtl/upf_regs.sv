// Registers of upf_top itself on AXI4-Lite: what it is, who has idle sessions, and the counters of the host's buffers. The map is
// hdl/regs.toml. All are read only: a write is answered with SLVERR.

`default_nettype none

module upf_regs #(
    parameter int unsigned DATA_W = 256,
    parameter bit          ONE_PORT = 1'b0,
    parameter int unsigned ID_W = 8,
    parameter int unsigned HOST_BEATS_W = 9
) (
    input  wire logic        clk,
    input  wire logic        rst,

    input  wire logic [14:0] s_axil_awaddr,
    input  wire logic        s_axil_awvalid,
    output wire logic        s_axil_awready,
    input  wire logic [31:0] s_axil_wdata,
    input  wire logic [3:0]  s_axil_wstrb,
    input  wire logic        s_axil_wvalid,
    output wire logic        s_axil_wready,
    output wire logic [1:0]  s_axil_bresp,
    output wire logic        s_axil_bvalid,
    input  wire logic        s_axil_bready,
    input  wire logic [14:0] s_axil_araddr,
    input  wire logic        s_axil_arvalid,
    output wire logic        s_axil_arready,
    output wire logic [31:0] s_axil_rdata,
    output wire logic [1:0]  s_axil_rresp,
    output wire logic        s_axil_rvalid,
    input  wire logic        s_axil_rready,

    // By direction: out of tunnels, into tunnels.
    input  wire logic [1:0]  is_idle,
    input  wire logic [1:0]  host_taken,
    input  wire logic [1:0]  host_dropped
);
    localparam logic [31:0] IDENTIFIER = 32'h5550_4631;  // UPF1

    wire logic        write;
    wire logic [14:0] write_addr;
    wire logic [31:0] write_data;
    wire logic [14:0] read_addr;
    logic [31:0]      read_value;
    logic             read_known;
    // Nothing can be written.
    wire logic unused_write = &{1'b0, write, write_addr, write_data};
    axil_slave #(.ADDR_W(15)) slave (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid, .s_axil_wready,
        .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid, .s_axil_arready, .s_axil_rdata,
        .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
        .write, .write_addr, .write_data, .write_fits(1'b0), .read_addr, .read_value, .read_known
    );

    logic [1:0][31:0] taken;
    logic [1:0][31:0] dropped;
    always_ff @(posedge clk) begin
        for (int unsigned at = 0; at < 2; at++) begin
            taken[at]   <= taken[at] + 32'(host_taken[at]);
            dropped[at] <= dropped[at] + 32'(host_dropped[at]);
        end
        if (rst) begin
            taken   <= '0;
            dropped <= '0;
        end
    end

    always_comb begin
        read_known = 1'b1;
        read_value = '0;
        unique case (read_addr)
            15'h4000: read_value = IDENTIFIER;
            15'h4004: read_value = {7'd0, ONE_PORT, 8'(HOST_BEATS_W), 8'(ID_W), 8'(DATA_W / 8)};
            15'h4008: read_value = {30'd0, is_idle};
            15'h4010: read_value = taken[0];
            15'h4014: read_value = taken[1];
            15'h4018: read_value = dropped[0];
            15'h401c: read_value = dropped[1];
            default:  read_known = 1'b0;
        endcase
    end
endmodule

`default_nettype wire
