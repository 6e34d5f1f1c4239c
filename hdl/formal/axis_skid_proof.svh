// Proof of a stream register, inside `axis_skid`: handshake rules (AXI4-Stream 2.2.1), no beat is
// lost, doubled, altered or overtaken, no beat waits without a cause.
  logic [3:0] any, first_any, nth;  // `any` is undriven: any value; `nth` is the one of the first clock
  logic past_valid = 1'b0, p_rst = 1'b1, p_wait = 1'b0, p_swait = 1'b0, p_mready = 1'b0;
  assign nth = past_valid ? first_any : any;
  always_ff @(posedge clk) if (!past_valid) first_any <= any;
  logic [BEAT_W-1:0] p_beat, p_sbeat, kept;
  logic [3:0] taken = '0, given = '0;
  logic [3:0] still = '0;
  logic in, out;
  logic [BEAT_W-1:0] beat_m;
  localparam logic [3:0] HOLDS = OUTPUT_REGISTER ? 4'd2 : 4'd1;
  logic [3:0] held;
  assign held   = taken - given;
  assign in     = s_axis_tvalid && s_axis_tready;
  assign out    = m_axis_tvalid && m_axis_tready;
  assign beat_m = {m_axis_tuser, m_axis_tlast, m_axis_tkeep, m_axis_tdata};

  always_ff @(posedge clk) begin
    past_valid <= 1'b1;
    p_rst      <= rst;
    p_wait     <= m_axis_tvalid && !m_axis_tready && !rst;
    p_swait    <= s_axis_tvalid && !s_axis_tready && !rst;
    p_beat     <= beat_m;
    p_sbeat    <= beat_in;
    p_mready   <= m_axis_tready;
    if (in && taken == nth) kept <= beat_in;
    taken <= rst ? '0 : taken + 4'(in);
    given <= rst ? '0 : given + 4'(out);
    still <= rst || out || taken == given ? '0 : m_axis_tready ? still + 4'd1 : still;
  end

  always_comb begin
    if (!past_valid) assume (rst);
    if (rst) assume (!s_axis_tvalid);
    if (p_swait && !rst) assume (s_axis_tvalid && beat_in == p_sbeat);
  end

  always_ff @(posedge clk) begin
    if (past_valid && !rst && !p_rst) begin
      if (p_wait) as_stays : assert (m_axis_tvalid && beat_m == p_beat);
      as_held    : assert (held <= HOLDS);
      as_made_up : assert (!(out && taken == given && !in));
      if (out && given == nth) as_order : assert (beat_m == (taken == given ? beat_in : kept));
      as_goes    : assert (still < 4'd2);
      as_shown   : assert (held == '0 || m_axis_tvalid);
      if (p_mready && taken == given) as_ready : assert (s_axis_tready || p_rst);
    end
    if (past_valid && !rst) begin
      co_all    : cover (held == HOLDS);
      co_full   : cover (!s_axis_tready && s_axis_tvalid && taken == 4'd3);
      co_stream : cover (given == 4'd5 && in && out);
      co_nth    : cover (out && given == nth && nth == 4'd2);
    end
  end
