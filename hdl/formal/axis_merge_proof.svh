// Proof of a merge of streams, inside `axis_merge`: handshake rules (AXI4-Stream 2.2.1), no beat is lost,
// doubled or altered, no frame begins in another, and who waits gets its turn.
  localparam int unsigned BEAT_W = DATA_W + DATA_W / 8 + 1 + USER_W;
  logic past_valid = 1'b0, p_rst = 1'b1, p_wait = 1'b0;
  logic [SOURCES-1:0][BEAT_W-1:0] beat_s, p_beat_s;
  logic [BEAT_W-1:0] beat_m, p_beat;
  logic [SOURCES-1:0] p_swait = '0;
  logic [SOURCE_W-1:0] p_source;
  logic in_frame = 1'b0;  // a frame has begun to leave and has not ended
  logic [SOURCE_W-1:0] frame_of;
  logic [SOURCE_W-1:0] any, first_any, one;  // `any` is undriven: any value; `one` is that of the first clock
  logic [3:0] others = '0;  // frames of others that began while source `one` had a beat to send
  logic [3:0] turns;  // sources that are asked up to `one`, with it
  logic out;
  assign turns  = chosen == one ? (is_open ? 4'd0 : 4'(SOURCES)) :
    4'(one) - 4'(chosen) + (one > chosen ? 4'd0 : 4'(SOURCES));
  assign one    = past_valid ? first_any : any;
  assign out    = m_axis_tvalid && m_axis_tready;
  assign beat_m = {m_axis_tuser, m_axis_tlast, m_axis_tkeep, m_axis_tdata};
  for (genvar at = 0; at < SOURCES; at++) begin : g_beat
    assign beat_s[at] = {s_axis_tuser[at], s_axis_tlast[at], s_axis_tkeep[at], s_axis_tdata[at]};
  end

  always_ff @(posedge clk) begin
    past_valid <= 1'b1;
    if (!past_valid) first_any <= any;
    p_rst    <= rst;
    p_wait   <= m_axis_tvalid && !m_axis_tready && !rst;
    p_beat   <= beat_m;
    p_source <= source;
    p_swait  <= rst ? '0 : s_axis_tvalid & ~s_axis_tready;
    p_beat_s <= beat_s;
    if (out) frame_of <= source;
    in_frame <= !rst && (out ? !m_axis_tlast : in_frame);
    if (rst || (s_axis_tready[one] && s_axis_tvalid[one]) || !s_axis_tvalid[one]) others <= '0;
    else if (out && !in_frame) others <= others + 4'd1;
  end

  always_comb begin
    if (!past_valid) assume (rst);
    assume (32'(one) < SOURCES);
    for (int at = 0; at < SOURCES; at++) begin
      if (p_swait[at] && !rst) assume (s_axis_tvalid[at] && beat_s[at] == p_beat_s[at]);
    end
  end

  always_ff @(posedge clk) begin
    if (past_valid && !rst && !p_rst) begin
      as_source : assert (32'(source) < SOURCES && 32'(chosen) < SOURCES);
      if (p_wait) as_stays : assert (m_axis_tvalid && beat_m == p_beat && source == p_source);
      if (p_wait) as_kept : assert (is_open && chosen == p_source);
      as_open : assert (is_open == (in_frame || p_wait));
      if (in_frame) as_of : assert (chosen == frame_of);
      if (in_frame) as_whole : assert (source == frame_of);
      as_same : assert (beat_m == beat_s[source] && m_axis_tvalid == s_axis_tvalid[source]);
      as_one : assert ((s_axis_tvalid & s_axis_tready) == (out ? SOURCES'(1) << source : '0));
      as_goes : assert (in_frame || m_axis_tvalid == |s_axis_tvalid);
      as_round : assert (others + turns + 4'(p_wait && !in_frame) <= 4'(SOURCES));
      if (in_frame && frame_of == one) as_own : assert (others == '0);
      as_turn : assert (others < 4'(SOURCES));
    end
    if (past_valid && !rst) begin
      co_turn   : cover (others == 4'(SOURCES - 1) && s_axis_tready[one]);
      co_stream : cover (in_frame && out && m_axis_tlast && &s_axis_tvalid);
      co_gap    : cover (in_frame && !m_axis_tvalid && |s_axis_tvalid);
    end
  end
