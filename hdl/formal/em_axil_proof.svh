// Proof of the AXI4-Lite port, inside `em_axil`: handshake rules (AMBA IHI 0022, A3.2), one response
// for one request, a refused write changes nothing, operands stay while the operation runs.
  logic past_valid = 1'b0;
  always_ff @(posedge clk) past_valid <= 1'b1;

  // ---- the other side keeps the rules ----
  logic        p_rst = 1'b1, p_aw = 1'b0, p_w = 1'b0, p_ar = 1'b0, p_b = 1'b0, p_r = 1'b0;
  logic [7:0]  p_awaddr, p_araddr;
  logic [31:0] p_wdata, p_rdata;
  logic [3:0]  p_wstrb;
  logic [1:0]  p_bresp, p_rresp;
  logic        p_refused = 1'b0, p_op = 1'b0, p_done = 1'b0;
  logic [KEY_N-1:0][31:0] p_key;
  logic [VAL_N-1:0][31:0] p_value;
  op_t         p_code;
  logic [1:0]  writes = '0, reads = '0;  // requests without a response

  always_ff @(posedge clk) begin
    p_rst     <= rst;
    p_aw      <= awvalid && !awready;
    p_w       <= wvalid && !wready;
    p_ar      <= arvalid && !arready;
    p_b       <= bvalid && !bready;
    p_r       <= rvalid && !rready;
    p_awaddr  <= awaddr;
    p_araddr  <= araddr;
    p_wdata   <= wdata;
    p_wstrb   <= wstrb;
    p_bresp   <= bresp;
    p_rdata   <= rdata;
    p_rresp   <= rresp;
    p_refused <= write && !wr_ok;
    p_op      <= op_valid;
    p_done    <= op_done;
    p_key     <= key;
    p_value   <= value;
    p_code    <= op_code;
    writes    <= rst ? '0 : writes + 2'(awvalid && awready) - 2'(bvalid && bready);
    reads     <= rst ? '0 : reads + 2'(arvalid && arready) - 2'(rvalid && rready);
  end

  always_comb begin
    if (!past_valid) assume (rst);
    if (op_done) assume (op_valid);
    if (rst) assume (!awvalid && !wvalid && !arvalid);
    if (!p_rst && !rst) begin
      if (p_aw) assume (awvalid && awaddr == p_awaddr);
      if (p_w) assume (wvalid && wdata == p_wdata && wstrb == p_wstrb);
      if (p_ar) assume (arvalid && araddr == p_araddr);
    end
  end

  always_ff @(posedge clk) begin
    if (past_valid && !p_rst && !rst) begin
      if (p_b) as_b_stays : assert (bvalid && bresp == p_bresp);
      if (p_r) as_r_stays : assert (rvalid && rresp == p_rresp && rdata == p_rdata);
      as_b_count : assert (writes == 2'(bvalid));
      as_r_count : assert (reads == 2'(rvalid));
      as_aw_w    : assert ((awvalid && awready) == (wvalid && wready));
      as_taken   : assert (!(awvalid && wvalid && !bvalid) || (awready && wready));
      as_read    : assert (!(arvalid && !rvalid) || arready);
      if (bvalid) as_bresp : assert (bresp == 2'b00 || bresp == 2'b10);
      if (rvalid) as_rresp : assert (rresp == 2'b00 || rresp == 2'b10);
      if (p_refused && !p_done) begin
        as_refused : assert (bresp == 2'b10 && key == p_key && value == p_value && op_valid == p_op);
      end
      if (p_op && !p_done) as_op_stays : assert (op_valid && op_code == p_code && key == p_key && value == p_value);
      if (p_op && p_done) as_op_ends : assert (!op_valid);
    end
    if (past_valid && !rst) begin
      co_write  : cover (bvalid && bready && bresp == 2'b00);
      co_slverr : cover (bvalid && bready && bresp == 2'b10 && op_valid);
      co_read   : cover (rvalid && rready && rresp == 2'b00 && rdata == 32'hA5A5_0F0F);
      co_rerr   : cover (rvalid && rready && rresp == 2'b10);
      co_op     : cover (op_done && op_code == OP_DELETE);
      co_late_w : cover (awvalid && !awready && !wvalid && !bvalid);
    end
  end
