// Exact-match table with AXI4-Lite control: PORTS writers, each with its own registers, share one
// engine through a round-robin arbiter. See docs/hardware-table.md for the register map.
module em_table
  import em_pkg::*;
#(
    parameter int unsigned PORTS    = 2,
    parameter int unsigned KEY_W    = 32,
    parameter int unsigned VAL_W    = 64,
    parameter int unsigned WAYS     = 4,
    parameter int unsigned IDX_W    = 8,
    parameter int unsigned QUEUE_W  = 6,
    parameter int unsigned LEN_W    = 16,
    parameter int unsigned PKT_W    = 40,
    parameter int unsigned BYTE_W   = 48,
    parameter bit          HASH_REG = 1,
    localparam int unsigned ID_W    = IDX_W + $clog2(WAYS)
) (
    input  logic                   clk,
    input  logic                   rst,
    // Lookup.
    input  logic                   lk_valid,
    input  logic [KEY_W-1:0]       lk_key,
    input  logic [LEN_W-1:0]       lk_len,
    output logic                   res_valid,
    output logic                   res_hit,
    output logic [ID_W-1:0]        res_id,
    output logic [VAL_W-1:0]       res_value,
    // AXI4-Lite, one of each a port.
    input  logic [PORTS-1:0]       s_awvalid,
    output logic [PORTS-1:0]       s_awready,
    input  logic [PORTS-1:0][7:0]  s_awaddr,
    input  logic [PORTS-1:0]       s_wvalid,
    output logic [PORTS-1:0]       s_wready,
    input  logic [PORTS-1:0][31:0] s_wdata,
    input  logic [PORTS-1:0][3:0]  s_wstrb,
    output logic [PORTS-1:0]       s_bvalid,
    input  logic [PORTS-1:0]       s_bready,
    output logic [PORTS-1:0][1:0]  s_bresp,
    input  logic [PORTS-1:0]       s_arvalid,
    output logic [PORTS-1:0]       s_arready,
    input  logic [PORTS-1:0][7:0]  s_araddr,
    output logic [PORTS-1:0]       s_rvalid,
    input  logic [PORTS-1:0]       s_rready,
    output logic [PORTS-1:0][31:0] s_rdata,
    output logic [PORTS-1:0][1:0]  s_rresp
);
  logic [PORTS-1:0]            req, grant;
  op_t                         code[PORTS], op_code;
  logic [PORTS-1:0][KEY_W-1:0] key;
  logic [PORTS-1:0][VAL_W-1:0] value;
  logic [PORTS-1:0][31:0]      arg;
  logic [KEY_W-1:0]            op_key;
  logic [VAL_W-1:0]            op_value, op_rvalue;
  logic [31:0]                 op_arg;
  logic                        op_done, live;
  status_t                     op_status;
  logic [ID_W-1:0]             op_id;
  logic [ID_W:0]               used;
  logic [PKT_W-1:0]            op_pkts;
  logic [BYTE_W-1:0]           op_bytes;

  for (genvar p = 0; p < PORTS; p++) begin : g_port
    em_axil #(
        .KEY_W(KEY_W), .VAL_W(VAL_W), .WAYS(WAYS), .IDX_W(IDX_W), .ID_W(ID_W), .PKT_W(PKT_W),
        .BYTE_W(BYTE_W)
    ) axil (
        .clk, .rst,
        .awvalid(s_awvalid[p]), .awready(s_awready[p]), .awaddr(s_awaddr[p]),
        .wvalid(s_wvalid[p]), .wready(s_wready[p]), .wdata(s_wdata[p]), .wstrb(s_wstrb[p]),
        .bvalid(s_bvalid[p]), .bready(s_bready[p]), .bresp(s_bresp[p]),
        .arvalid(s_arvalid[p]), .arready(s_arready[p]), .araddr(s_araddr[p]),
        .rvalid(s_rvalid[p]), .rready(s_rready[p]), .rdata(s_rdata[p]), .rresp(s_rresp[p]),
        .live, .used,
        .op_valid(req[p]), .op_code(code[p]), .op_key(key[p]), .op_value(value[p]), .op_arg(arg[p]),
        .op_done(op_done && grant[p]),
        .op_status, .op_id, .op_rvalue, .op_pkts, .op_bytes
    );
  end

  em_arbiter #(.PORTS(PORTS)) arbiter (.clk, .rst, .req, .done(op_done), .grant);

  // Operands of the granted port. The grant lasts to the end of the operation.
  always_comb begin
    op_code  = OP_START;
    op_key   = '0;
    op_value = '0;
    op_arg   = '0;
    for (int unsigned p = 0; p < PORTS; p++) begin
      if (grant[p]) op_code = op_t'(op_code | code[p]);
      op_key   |= key[p] & {KEY_W{grant[p]}};
      op_value |= value[p] & {VAL_W{grant[p]}};
      op_arg   |= arg[p] & {32{grant[p]}};
    end
  end

  em_core #(
      .KEY_W(KEY_W), .VAL_W(VAL_W), .WAYS(WAYS), .IDX_W(IDX_W), .QUEUE_W(QUEUE_W), .LEN_W(LEN_W),
      .PKT_W(PKT_W), .BYTE_W(BYTE_W), .HASH_REG(HASH_REG)
  ) core (
      .clk, .rst, .live, .used,
      .lk_valid, .lk_key, .lk_len, .res_valid, .res_hit, .res_id, .res_value,
      .op_valid(|grant), .op_code, .op_key, .op_value, .op_arg,
      .op_done, .op_status, .op_id, .op_rvalue, .op_pkts, .op_bytes
  );
endmodule
