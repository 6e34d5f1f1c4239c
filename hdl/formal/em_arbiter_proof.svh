// Proof of the arbiter, inside `em_arbiter`: one grant at a time, kept to the end, and a port that
// asks waits for at most one operation of each other port.
  logic past_valid = 1'b0, p_rst = 1'b1, p_done = 1'b0;
  logic [PORTS-1:0] p_req = '0, p_grant = '0;
  logic [PORTS-1:0][3:0] passed = '0;  // grants to others since the port asks

  always_ff @(posedge clk) begin
    past_valid <= 1'b1;
    p_rst      <= rst;
    p_done     <= done;
    p_req      <= req;
    p_grant    <= grant;
    for (int unsigned p = 0; p < PORTS; p++) begin
      if (rst || !req[p] || grant[p]) passed[p] <= '0;
      else if (done && passed[p] != 4'hF) passed[p] <= passed[p] + 4'd1;
    end
  end

  always_comb begin
    if (!past_valid) assume (rst);
    if (done) assume (grant != '0);
    // A port asks until it is served.
    if (past_valid && !p_rst && !rst)
      for (int unsigned p = 0; p < PORTS; p++)
        if (p_req[p] && !(p_grant[p] && p_done)) assume (req[p]);
    if (rst) assume (req == '0);
  end

  always_ff @(posedge clk) begin
    if (past_valid && !p_rst && !rst) begin
      as_one   : assert ((grant & (grant - PORTS'(1))) == '0);
      as_last  : assert (last != '0 && (last & (last - PORTS'(1))) == '0);
      as_asked : assert ((grant & ~req) == '0);
      if (p_grant != '0 && !p_done) as_kept : assert (grant == p_grant);
      if (p_grant != '0 && p_done) as_ended : assert (grant == '0);
      if (p_grant == '0 && p_req != '0) as_work : assert (grant != '0);
      for (int unsigned p = 0; p < PORTS; p++) assert (passed[p] < 4'(PORTS));
    end
    if (past_valid && !rst) begin
      co_wait : cover (passed[0] == 4'(PORTS - 1) && grant[0]);
      co_last : cover (grant[PORTS-1] && done && req == '1);
    end
  end
