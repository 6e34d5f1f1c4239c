// Proof of the counters, inside `em_counters`: what control reads is what was counted, for any
// order of hits on any entries, and a new epoch begins at zero.
  logic past_valid = 1'b0;
  logic [ID_W-1:0] any, first_any, probe;  // `any` is undriven: any value; `probe` is the one of the first clock
  assign probe = past_valid ? first_any : any;
  always_ff @(posedge clk) if (!past_valid) first_any <= any;
  logic [ID_W:0] step = '0;
  logic epoch_now = 1'b0, old_has = 1'b0;
  logic [3:0] quiet = '0;
  logic [PKT_W-1:0] packets = '0, d_packets[3];
  logic [BYTE_W-1:0] size = '0, d_size[3];
  logic touched = 1'b0, d_touched[3];
  logic ready;
  assign ready = step[ID_W];
  logic renew;  // undriven: any value in each clock

  always_ff @(posedge clk) begin
    past_valid <= 1'b1;
    if (!rst && !ready) step <= step + (ID_W + 1)'(1);
    quiet <= rd_valid && rd_id == probe ? 4'd0 : quiet == 4'hF ? quiet : quiet + 4'd1;
    if (rd_valid && rd_id == probe) begin
      packets <= packets + PKT_W'(1);
      size    <= size + BYTE_W'(rd_len);
      touched <= 1'b1;
    end
    // The entry goes; its number comes again with a new epoch, as the engine does it.
    if (renew && quiet > 4'd3 && !(rd_valid && rd_id == probe)) begin
      packets   <= '0;
      size      <= '0;
      touched   <= 1'b0;
      epoch_now <= epoch_now ^ touched;
    end
    d_packets[0] <= packets;
    d_size[0]    <= size;
    d_touched[0] <= touched;
    for (int unsigned i = 1; i < 3; i++) begin
      d_packets[i] <= d_packets[i-1];
      d_size[i]    <= d_size[i-1];
      d_touched[i] <= d_touched[i-1];
    end
  end

  logic [ID_W-1:0] p_ctl = '0;
  logic p_epoch = 1'b0, p_ready = 1'b0, p_renew = 1'b1, pp_renew = 1'b1, ppp_renew = 1'b1;
  always_ff @(posedge clk) begin
    p_ctl     <= ctl_id;
    p_epoch   <= ctl_epoch;
    p_ready   <= ready;
    p_renew   <= renew;
    pp_renew  <= p_renew;
    ppp_renew <= pp_renew;
  end

  always_comb begin
    assume (rst == !past_valid);
    assume (clr == (past_valid && !ready));
    if (clr) assume (clr_id == step[ID_W-1:0]);
    if (!ready) assume (!rd_valid);
    if (rd_valid && rd_id == probe) assume (rd_epoch == epoch_now);
    if (renew) assume (!rd_valid);
    assume (ctl_epoch == epoch_now);
    // The engine keeps the epoch while it reads.
  end

  // A read sees the hits that came two clocks or more before it.
  always_ff @(posedge clk) begin
    if (past_valid && p_ready && p_ctl == probe && !p_renew && !pp_renew && !ppp_renew && p_epoch == ctl_epoch) begin
      as_packets : assert (ctl_pkts == d_packets[1]);
      as_bytes   : assert (ctl_bytes == d_size[1]);
      if (quiet > 4'd4) as_match : assert (ctl_match == touched);
    end
    if (past_valid) begin
      co_two   : cover (p_ready && ctl_pkts == PKT_W'(3) && p_ctl == probe);
      co_renew : cover (p_ready && epoch_now && touched && quiet > 4'd4 && ctl_pkts == PKT_W'(1) && p_ctl == probe);
    end
  end
