// Proof of the core that puts packets into GRE tunnels, inside `gre_encap`: handshake rules (AXI4-Stream 2.2.1) on both ways out; each
// frame that came in leaves once by one way or is dropped, in order, with one event that says so; what leaves as it came has the beats
// that came in; what goes into a tunnel has each octet of its packet once, in its place behind the headers.
//
// What the tunnels answer, what is read of an IP header, the sum of GRE and the new headers are any values in each clock, which `cuts` of
// hdl/formal/run names. So the proof is of where octets go, and not of which headers they get. With OCTETS_MOVE it is of the octets that go
// into a tunnel, without it of all else.
//
// Reset is in the first clock, and no register has a value before it: so it comes in the middle of any frames. Covers show that it does.
  localparam int unsigned COUNT = 4;    // bits of numbers of frames and beats
  localparam int unsigned LANE_W = $clog2(OCTETS);
  localparam logic [4:0] QUIET = 5'd13; // clocks in which nothing leaves: all stages, and a dropped frame as long as the memory

  // Undriven: any value. Those of the first clock choose a frame, a beat of it, and an octet of that.
  logic [COUNT-1:0] any_frame, any_beat, first_frame, first_beat, nth, beat_of;
  logic [LANE_W-1:0] any_lane, first_lane, lane;
  logic past_valid = 1'b0;
  assign nth     = past_valid ? first_frame : any_frame;
  assign beat_of = past_valid ? first_beat : any_beat;
  assign lane    = past_valid ? first_lane : any_lane;

  // A beat, with the chosen octet for all of them.
  typedef struct packed {
    logic              last;
    logic [OCTETS-1:0] keep;
    logic [7:0]        octet;
  } proof_beat_t;
  proof_beat_t in_beat, kept, m_beat, p_m_beat, host_beat, p_host_beat, p_in_beat;
  logic [DATA_W-1:0] p_in_data;
  logic in, out_m, out_host, p_in_wait = 1'b0, p_m_wait = 1'b0, p_host_wait = 1'b0, p_in_user;
  logic [5:0] p_host_user;
  assign in        = s_axis_tvalid && s_axis_tready;
  assign out_m     = m_axis_tvalid && m_axis_tready;
  assign out_host  = host_axis_tvalid && host_axis_tready;
  assign in_beat   = '{last: s_axis_tlast, keep: s_axis_tkeep, octet: s_axis_tdata[8*lane+:8]};
  assign m_beat    = '{last: m_axis_tlast, keep: m_axis_tkeep, octet: m_axis_tdata[8*lane+:8]};
  assign host_beat = '{last: host_axis_tlast, keep: host_axis_tkeep, octet: host_axis_tdata[8*lane+:8]};

  // tkeep is contiguous from octet 0, not empty, and full but in the last beat.
  function automatic logic keeps(input proof_beat_t beat);
    return beat.keep[0] && (beat.keep & (beat.keep + 1'b1)) == '0 && (beat.last || beat.keep == '1);
  endfunction

  // Frames that have come in, and of which an event has told; the beats of the one that comes in, and of the one that leaves. A frame that
  // is longer than the memory has come in when that is known, for its event need not wait for the rest.
  logic [COUNT-1:0] came_in = '0, told_of = '0, in_number = '0, out_number = '0;
  logic is_rest = 1'b0;                          // of such a frame comes in
  logic counts, chosen;
  assign counts = !is_rest && (s_axis_tlast || in_number == COUNT'(2 ** BEATS_W - 1));
  assign chosen = !is_rest && came_in == nth;
  logic has_kept = 1'b0;                         // the chosen beat has come in
  logic was_wrong, was_long;                     // the chosen frame came with an error, or is longer than the memory
  logic m_ended = 1'b0, m_begun = 1'b0;          // of the frame that leaves, by m_axis
  logic host_ended = 1'b0, host_begun = 1'b0;    // by host_axis
  logic [4:0] quiet = '0;
  logic cut_in = 1'b0, cut_out = 1'b0;           // reset came while a frame came in, while one left
  logic stopped;
  assign stopped = (m_axis_tvalid && !m_axis_tready) || (host_axis_tvalid && !host_axis_tready);

  // Of the frame that leaves, if it goes into a tunnel: octets of headers, of the frame before its packet, and of the packet.
  logic [7:0] proof_headers = '0, proof_from = '0;
  logic [COUNT_W-1:0] proof_packet = '0;
  logic proof_changes = 1'b0;
  // Where the chosen octet stands in the frame, and in the one that leaves.
  logic [9:0] at_in, at_out;
  // An octet that a packet may have another of when it loses a hop: from the hop limit of IPv6 to the checksum of IPv4.
  logic at_hop;
  assign at_hop = at_in >= 10'(proof_from) + 10'd7 && at_in <= 10'(proof_from) + 10'd11;
  assign at_in  = {1'b0, beat_of, lane};
  assign at_out = at_in - 10'(proof_from) + 10'(proof_headers);
  // The chosen octet, of the packet, is in the beat that leaves now.
  logic moved;
  assign moved = m_axis_tvalid && encapsulates && told_of == nth && at_out[9:LANE_W] == 5'(out_number) &&
    at_in >= 10'(proof_from) && at_in < 10'(proof_from) + 10'(proof_packet) && !(proof_changes && at_hop);

  always_ff @(posedge clk) begin
    past_valid <= 1'b1;
    if (!past_valid) begin
      first_frame <= any_frame;
      first_beat  <= any_beat;
      first_lane  <= any_lane;
      cut_in      <= beat_number != '0;
      cut_out     <= head_valid && !first[0] && !last[0];
    end
    p_in_wait   <= past_valid && s_axis_tvalid && !s_axis_tready;
    p_m_wait    <= past_valid && m_axis_tvalid && !m_axis_tready;
    p_host_wait <= past_valid && host_axis_tvalid && !host_axis_tready;
    p_in_beat   <= in_beat;
    p_in_data   <= s_axis_tdata;
    p_in_user   <= s_axis_tuser;
    p_m_beat    <= m_beat;
    p_host_beat <= host_beat;
    p_host_user <= host_axis_tuser;
    if (in) begin
      if (chosen && in_number == beat_of) {has_kept, kept} <= {1'b1, in_beat};
      if (chosen && counts) {was_wrong, was_long} <= {s_axis_tuser, !s_axis_tlast};
      in_number <= s_axis_tlast ? '0 : in_number + 1'b1;
      is_rest   <= !s_axis_tlast && (is_rest || counts);
      came_in   <= came_in + COUNT'(counts);
    end
    if (out_m || out_host) out_number <= out_number + 1'b1;
    m_begun    <= m_begun || out_m;
    host_begun <= host_begun || out_host;
    m_ended    <= m_ended || (out_m && m_axis_tlast);
    host_ended <= host_ended || (out_host && host_axis_tlast);
    if (event_valid) begin
      told_of    <= told_of + 1'b1;
      out_number <= '0;
      {m_begun, m_ended, host_begun, host_ended} <= '0;
    end
    quiet <= stopped || told_of == came_in || event_valid || out_m || out_host ? '0 : quiet + 1'b1;
    if (decided) begin
      proof_headers <= 8'd14 + (flags.route ? 8'd0 : {4'd0, front_read.tags, 2'd0}) + (out.is_v6 ? 8'd40 : 8'd20) + 8'd4 +
        (flags.has_checksum ? 8'd4 : 8'd0) + (flags.has_key ? 8'd4 : 8'd0);
      proof_from    <= flags.ethernet ? 8'd0 : 8'd14 + {4'd0, front_read.tags, 2'd0};
      proof_packet  <= flags.ethernet ? front_read.length : inner.total;
      proof_changes <= flags.route && !flags.ethernet;
    end
    if (rst) begin
      {came_in, told_of, in_number, is_rest, out_number, has_kept, quiet} <= '0;
      {m_begun, m_ended, host_begun, host_ended} <= '0;
    end
  end

  always_comb begin
    assume (rst == !past_valid);
    assume (!s_axis_tvalid || keeps(in_beat));
    if (p_in_wait) assume (s_axis_tvalid && in_beat == p_in_beat && s_axis_tdata == p_in_data && s_axis_tuser == p_in_user);
    // gre_tunnels refuses others: what has no IP header in good order has no packet.
    assume (!is_for || has_ip || outer.flags.ethernet);
    // ip_read calls others malformed.
    assume (packet.malformed || packet.total <= available);
  end

  // Of the event: whether the frame went out by m_axis, or to the host.
  logic goes, goes_host;
  assign goes      = event_code == PASSED || event_code == ENCAPSULATED;
  assign goes_host = event_code[4];

  always_ff @(posedge clk) begin
    if (past_valid) begin
`ifdef OCTETS_MOVE
      if (moved) as_octet : assert (has_kept && m_axis_tkeep[at_out[LANE_W-1:0]] &&
                                    m_axis_tdata[8*at_out[LANE_W-1:0]+:8] == kept.octet);
`else
      if (p_m_wait) as_m_stays : assert (m_axis_tvalid && m_beat == p_m_beat);
      if (p_host_wait) as_host_stays : assert (host_axis_tvalid && host_beat == p_host_beat && host_axis_tuser == p_host_user);
      if (m_axis_tvalid) as_m_keep : assert (keeps(m_beat) && !m_axis_tuser);
      if (host_axis_tvalid) as_host_keep : assert (keeps(host_beat) && host_axis_tuser[5:4] == 2'b01);
      as_one_way : assert (!m_axis_tvalid || !host_axis_tvalid);
      if (m_axis_tvalid || host_axis_tvalid || event_valid) as_made_up : assert (told_of != came_in);
      if (m_axis_tvalid) as_m_whole : assert (!m_ended && !host_begun);
      if (host_axis_tvalid) as_host_whole : assert (!host_ended && !m_begun);
      if (event_valid) begin
        as_m_event : assert (goes == (m_ended || (out_m && m_axis_tlast)));
        as_host_event : assert (goes_host == (out_host && host_axis_tlast));
        if (!goes) as_m_none : assert (!m_begun && !out_m);
        if (!goes_host) as_host_none : assert (!host_begun && !out_host);
        if (goes_host) as_told : assert (host_axis_tuser == {1'b0, event_code});
        if (told_of == nth) as_error : assert ((event_code == FRAME_ERROR) == (was_wrong && !was_long));
        if (told_of == nth && was_long) as_long : assert (event_code == TOO_BIG);
        as_code : assert (goes || goes_host || event_code == TOO_BIG || event_code == FRAME_ERROR);
      end
      if (told_of == nth && out_number == beat_of) begin
        if (host_axis_tvalid) as_host_order : assert (has_kept && host_beat == kept);
        if (m_axis_tvalid && passes) as_m_order : assert (has_kept && m_beat == kept);
      end
      if (m_axis_tvalid && m_axis_tlast && encapsulates)
        as_length : assert (COUNT_W'(out_number) * COUNT_W'(OCTETS) + COUNT_W'($countones(m_axis_tkeep)) ==
                           COUNT_W'(proof_headers) + proof_packet);
      as_goes : assert (quiet < QUIET);
`endif
    end
    if (past_valid) begin
`ifdef OCTETS_MOVE
      co_cut     : cover (moved && cut_in && cut_out);
      co_octet   : cover (moved && told_of == 4'd1 && beat_of == 4'd1);
      co_headers : cover (moved && out_number == 4'd2 && beat_of == 4'd0);
`else
      co_cut     : cover (event_valid && event_code == PASSED && cut_in && cut_out);
      co_pass    : cover (event_valid && event_code == PASSED && told_of == 4'd2);
      co_tunnel  : cover (event_valid && event_code == ENCAPSULATED && told_of == nth && has_kept && beat_of == 4'd1);
      co_padding : cover (event_valid && event_code == ENCAPSULATED && m_ended);
      co_host    : cover (event_valid && goes_host && told_of == 4'd1);
      co_error   : cover (event_valid && event_code == FRAME_ERROR && told_of == 4'd1);
      co_long    : cover (event_valid && event_code == TOO_BIG && came_in == 4'd2);
      co_full    : cover (came && is_full && !swallows);
      co_ahead   : cover (out_m && encapsulates && !is_behind && first[0] && told_of == 4'd1);
`endif
    end
  end
