// AXI4-Lite port of the exact-match table: operand and result registers of one writer.
//
// One write and one read are in progress at a time. Answers SLVERR: an address without a register,
// an address that is no multiple of 4, a write to a read-only register, a write with a strobe other
// than 4'b1111, and a write while the operation of this port runs. Such a write changes nothing.
module em_axil
  import em_pkg::*;
#(
    parameter int unsigned KEY_W  = 32,
    parameter int unsigned VAL_W  = 64,
    parameter int unsigned WAYS   = 4,
    parameter int unsigned IDX_W  = 8,
    parameter int unsigned ID_W   = 10,
    parameter int unsigned PKT_W  = 40,
    parameter int unsigned BYTE_W = 48
) (
    input  logic              clk,
    input  logic              rst,
    // AXI4-Lite.
    input  logic              awvalid,
    output logic              awready,
    input  logic [7:0]        awaddr,
    input  logic              wvalid,
    output logic              wready,
    input  logic [31:0]       wdata,
    input  logic [3:0]        wstrb,
    output logic              bvalid,
    input  logic              bready,
    output logic [1:0]        bresp,
    input  logic              arvalid,
    output logic              arready,
    input  logic [7:0]        araddr,
    output logic              rvalid,
    input  logic              rready,
    output logic [31:0]       rdata,
    output logic [1:0]        rresp,
    // Table state.
    input  logic              live,
    input  logic [ID_W:0]     used,
    // Operation.
    output logic              op_valid,
    output op_t               op_code,
    output logic [KEY_W-1:0]  op_key,
    output logic [VAL_W-1:0]  op_value,
    output logic [31:0]       op_arg,
    input  logic              op_done,
    input  status_t           op_status,
    input  logic [ID_W-1:0]   op_id,
    input  logic [VAL_W-1:0]  op_rvalue,
    input  logic [PKT_W-1:0]  op_pkts,
    input  logic [BYTE_W-1:0] op_bytes
);
  localparam int unsigned KEY_N = (KEY_W + 31) / 32;
  localparam int unsigned VAL_N = (VAL_W + 31) / 32;
  localparam logic [1:0] OKAY = 2'b00, SLVERR = 2'b10;
  localparam logic [31:0] IDENT = 32'h4B45_4D31;  // "KEM1"

  logic [KEY_N-1:0][31:0] key;
  logic [VAL_N-1:0][31:0] value;
  logic [PKT_W-1:0]       pkts;
  logic [BYTE_W-1:0]      bytes;
  logic [ID_W-1:0]        id;
  status_t                status;

  assign op_key   = KEY_W'(key);
  assign op_value = VAL_W'(value);
  assign op_arg   = value[0];

  // ---- write ---------------------------------------------------------------------------------
  logic             write, wr_ok, is_cmd;
  logic [KEY_N-1:0] is_key;
  logic [VAL_N-1:0] is_val;

  assign write   = awvalid && wvalid && !bvalid;
  assign awready = write;
  assign wready  = write;

  always_comb begin
    is_cmd = awaddr == 8'h10;
    for (int unsigned i = 0; i < KEY_N; i++) is_key[i] = awaddr == 8'h20 + 8'(4 * i);
    for (int unsigned i = 0; i < VAL_N; i++) is_val[i] = awaddr == 8'h40 + 8'(4 * i);
    wr_ok = (is_cmd || |is_key || |is_val) && wstrb == 4'hF && !op_valid;
  end

  always_ff @(posedge clk) begin
    if (bready) bvalid <= 1'b0;
    if (write) begin
      bvalid <= 1'b1;
      bresp  <= wr_ok ? OKAY : SLVERR;
      if (wr_ok) begin
        for (int unsigned i = 0; i < KEY_N; i++) if (is_key[i]) key[i] <= wdata;
        for (int unsigned i = 0; i < VAL_N; i++) if (is_val[i]) value[i] <= wdata;
        if (is_cmd) begin
          op_valid <= 1'b1;
          op_code  <= op_t'(wdata[2:0]);
        end
      end
    end
    if (op_done) begin
      op_valid <= 1'b0;
      status   <= op_status;
      id       <= op_id;
      if (op_code == OP_READ || op_code == OP_DELETE) begin
        value <= (32 * VAL_N)'(op_rvalue);
        pkts  <= op_pkts;
        bytes <= op_bytes;
      end
    end
    if (rst) begin
      bvalid   <= 1'b0;
      op_valid <= 1'b0;
    end
  end

  // ---- read ----------------------------------------------------------------------------------
  logic        read, rd_ok;
  logic [31:0] rd_word;
  logic [63:0] pkts64, bytes64;

  assign pkts64  = 64'(pkts);
  assign bytes64 = 64'(bytes);

  assign arready = !rvalid;
  assign read    = arvalid && arready;

  always_comb begin
    rd_ok   = 1'b1;
    rd_word = '0;
    case (araddr)
      8'h00: rd_word = IDENT;
      8'h04: rd_word = {8'(IDX_W), 8'(WAYS), 16'(KEY_W)};
      8'h08: rd_word = {8'(BYTE_W), 8'(PKT_W), 16'(VAL_W)};
      8'h0C: rd_word = {live, 31'(used)};
      8'h14: rd_word = {op_valid, 28'd0, status};
      8'h18: rd_word = 32'(id);
      8'h60: rd_word = pkts64[31:0];
      8'h64: rd_word = pkts64[63:32];
      8'h68: rd_word = bytes64[31:0];
      8'h6C: rd_word = bytes64[63:32];
      default: begin
        rd_ok = 1'b0;
        for (int unsigned i = 0; i < KEY_N; i++)
          if (araddr == 8'h20 + 8'(4 * i)) begin
            rd_ok   = 1'b1;
            rd_word = key[i];
          end
        for (int unsigned i = 0; i < VAL_N; i++)
          if (araddr == 8'h40 + 8'(4 * i)) begin
            rd_ok   = 1'b1;
            rd_word = value[i];
          end
      end
    endcase
  end

  always_ff @(posedge clk) begin
    if (rready) rvalid <= 1'b0;
    if (read) begin
      rvalid <= 1'b1;
      rdata  <= rd_word;
      rresp  <= rd_ok ? OKAY : SLVERR;
    end
    if (rst) rvalid <= 1'b0;
  end
endmodule
