// The handshakes of AXI4-Lite for a set of registers of 32 bits.
//
// An access that is not aligned to a word or writes less than one, and what the registers refuse, is answered with SLVERR; what is
// refused must change nothing. Address and data of a write are taken together.

`default_nettype none

module axil_slave #(
    parameter int unsigned ADDR_W = 12
) (
    input  wire logic              clk,
    input  wire logic              rst,

    input  wire logic [ADDR_W-1:0] s_axil_awaddr,
    input  wire logic              s_axil_awvalid,
    output wire logic              s_axil_awready,
    input  wire logic [31:0]       s_axil_wdata,
    input  wire logic [3:0]        s_axil_wstrb,
    input  wire logic              s_axil_wvalid,
    output wire logic              s_axil_wready,
    output wire logic [1:0]        s_axil_bresp,
    output wire logic              s_axil_bvalid,
    input  wire logic              s_axil_bready,
    input  wire logic [ADDR_W-1:0] s_axil_araddr,
    input  wire logic              s_axil_arvalid,
    output wire logic              s_axil_arready,
    output wire logic [31:0]       s_axil_rdata,
    output wire logic [1:0]        s_axil_rresp,
    output wire logic              s_axil_rvalid,
    input  wire logic              s_axil_rready,

    // A whole, aligned word is written now; whether there is a register for it, and the value means something.
    output wire logic              write,
    output wire logic [ADDR_W-1:0] write_addr,
    output wire logic [31:0]       write_data,
    input  wire logic              write_fits,
    // What is read, in the clock after its address was taken, and whether it is there.
    output wire logic [ADDR_W-1:0] read_addr,
    input  wire logic [31:0]       read_value,
    input  wire logic              read_known
);
    localparam logic [1:0] OKAY = 2'b00;
    localparam logic [1:0] SLVERR = 2'b10;

    logic       b_valid;
    logic [1:0] b_resp;
    wire logic taken = s_axil_awvalid && s_axil_wvalid && !b_valid;
    wire logic is_sound = s_axil_awaddr[1:0] == 2'b00 && s_axil_wstrb == 4'hf;

    assign s_axil_awready = taken;
    assign s_axil_wready = taken;
    assign s_axil_bvalid = b_valid;
    assign s_axil_bresp = b_resp;
    assign write = taken && is_sound;
    assign write_addr = s_axil_awaddr;
    assign write_data = s_axil_wdata;

    always_ff @(posedge clk) begin
        if (s_axil_bready) b_valid <= 1'b0;
        if (taken) begin
            b_valid <= 1'b1;
            b_resp  <= is_sound && write_fits ? OKAY : SLVERR;
        end
        if (rst) begin
            b_valid <= 1'b0;
            b_resp  <= OKAY;
        end
    end

    logic [ADDR_W-1:0] r_addr;
    logic              r_pending;
    logic              r_valid;
    logic [1:0]        r_resp;
    logic [31:0]       r_data;
    wire logic is_known = read_known && r_addr[1:0] == 2'b00;

    assign s_axil_arready = !r_pending && !r_valid;
    assign s_axil_rvalid = r_valid;
    assign s_axil_rresp = r_resp;
    assign s_axil_rdata = r_data;
    assign read_addr = r_addr;

    always_ff @(posedge clk) begin
        if (s_axil_arready) r_addr <= s_axil_araddr;
        if (r_pending) begin
            r_data <= is_known ? read_value : '0;
            r_resp <= is_known ? OKAY : SLVERR;
        end
        if (rst) begin
            r_pending <= 1'b0;
            r_valid   <= 1'b0;
        end else begin
            r_pending <= s_axil_arvalid && s_axil_arready;
            r_valid   <= r_pending || (r_valid && !s_axil_rready);
        end
    end
endmodule

`default_nettype wire
