// Proof of a buffer of frames, inside `axis_frame_fifo`: handshake rules (AXI4-Stream 2.2.1); the beats of the
// frames that are taken leave once, unchanged and in order, and no beat of another; a frame is dropped if a beat
// of it had no room, and else taken.
  logic [3:0] any, first_any, nth;  // `any` is undriven: any value; `nth` is the one of the first clock
  logic past_valid = 1'b0, p_rst = 1'b1, p_wait = 1'b0;
  assign nth = past_valid ? first_any : any;
  logic [BEAT_W-1:0] beat_s, beat_m, p_beat, kept;
  logic [3:0] taken = '0, given = '0;  // beats of whole frames that came in, and that left
  logic [3:0] begun = '0;              // beats of the frame that comes in, as far as it has room
  logic lost = 1'b0;                   // one of them had none
  logic [1:0] still = '0;
  logic full, out;
  logic [3:0] held;
  assign held   = taken + begun - given;
  assign full   = held == 4'(2 ** BEATS_W);
  assign out    = m_axis_tvalid && m_axis_tready;
  assign beat_s = {s_axis_tuser, s_axis_tlast, s_axis_tkeep, s_axis_tdata};
  assign beat_m = {m_axis_tuser, m_axis_tlast, m_axis_tkeep, m_axis_tdata};

  always_ff @(posedge clk) begin
    past_valid <= 1'b1;
    if (!past_valid) first_any <= any;
    p_rst  <= rst;
    p_wait <= m_axis_tvalid && !m_axis_tready && !rst;
    p_beat <= beat_m;
    // The beats of a frame that is dropped have the numbers of those of the next.
    if (s_axis_tvalid && !full && !lost && taken + begun == nth) kept <= beat_s;
    given <= rst ? '0 : given + 4'(out);
    still <= rst || taken == given || out ? '0 : still + 2'(!m_axis_tvalid);
    if (rst) begin
      {taken, begun, lost} <= '0;
    end else if (s_axis_tvalid) begin
      if (full || lost) begin
        begun <= '0;
        lost  <= !s_axis_tlast;
      end else if (s_axis_tlast) begin
        taken <= taken + begun + 4'd1;
        begun <= '0;
      end else begin
        begun <= begun + 4'd1;
      end
    end
  end

  always_comb begin
    if (!past_valid) assume (rst);
    // As far as the numbers of this proof reach.
    assume (taken + begun < 4'd15);
  end

  always_ff @(posedge clk) begin
    if (past_valid && !rst && !p_rst) begin
      if (p_wait) as_stays : assert (m_axis_tvalid && beat_m == p_beat);
      as_held    : assert (held <= 4'(2 ** BEATS_W));
      as_made_up : assert (!m_axis_tvalid || given < taken);
      if (out && given == nth) as_order : assert (beat_m == kept);
      as_taken   : assert (frame_taken == (s_axis_tvalid && s_axis_tlast && !full && !lost));
      as_dropped : assert (frame_dropped == (s_axis_tvalid && s_axis_tlast && (full || lost)));
      as_goes    : assert (still < 2'd2);
    end
    if (past_valid && !rst) begin
      co_all    : cover (held == 4'(2 ** BEATS_W) && given == 4'd2);
      co_drop   : cover (frame_dropped && begun == '0 && given == 4'd1 && taken == 4'd3);
      co_again  : cover (lost && s_axis_tvalid && !full && s_axis_tlast);
      co_stream : cover (given == 4'd5 && out && frame_taken);
      co_nth    : cover (out && given == nth && nth == 4'd4);
    end
  end
