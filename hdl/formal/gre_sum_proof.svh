// Proof of the checksum of GRE, inside `gre_sum`: whatever beats come and wait, the total is that of the octets between where GRE
// begins and where the packet ends, added one word of 16 bits after the other (RFC 1071), an octet of zero behind an odd one. With
// each beat goes whether the sum up to it is right.
  logic past_valid = 1'b0, begun = 1'b0;
  // Of the beat in the stage where headers are read: its first octet's number in the frame.
  logic [7:0] place = '0, p_begin = '0, begin_at;
  logic [COUNT_W-1:0] p_end = '0, end_at, number;
  logic [15:0] reference = '0, next_reference;
  logic [16:0] added;
  logic [7:0] here;
  // Whether the sum up to the beat of each stage is right, and whether there is one.
  logic [PARSED-1:0] p_right = '0, filled = '0;

  assign here     = is_first ? 8'd0 : place;
  assign begin_at = is_first ? 8'd14 + {1'b0, gre_at, 2'b00} : p_begin;
  assign end_at   = is_first ? packet_end : p_end;
  always_comb begin
    next_reference = is_first ? '0 : reference;
    for (int at = 0; at < HALVES; at++) begin
      number = COUNT_W'(here) + COUNT_W'(2 * at);
      added  = {1'b0, next_reference};
      if (number >= COUNT_W'(begin_at)) begin
        added = added + {1'b0, number < end_at ? octets[2*at] : 8'd0, number + 1 < end_at ? octets[2*at+1] : 8'd0};
      end
      next_reference = added[15:0] + 16'(added[16]);
    end
  end

  always_ff @(posedge clk) begin
    past_valid <= 1'b1;
    for (int at = 0; at < PARSED - 1; at++) begin
      if (load[at]) begin
        filled[at]  <= filled[at+1];
        p_right[at] <= p_right[at+1];
      end
    end
    if (load[PARSED-1]) begin
      begun             <= 1'b1;
      filled[PARSED-1]  <= 1'b1;
      p_right[PARSED-1] <= next_reference == 16'hffff;
      reference         <= next_reference;
      place             <= here + 8'(OCTETS);
      p_begin           <= begin_at;
      p_end             <= end_at;
    end
  end

  always_comb begin
    // The first beat of all is the first of a frame. GRE is near, so that a few beats reach it.
    if (!begun) assume (is_first);
    assume (gre_at < 5'd3);
    assume (place < 8'd96 || is_first);
  end

  always_ff @(posedge clk) begin
    if (past_valid && begun) begin
      as_total : assert (total == reference);
      as_right : assert ((filled & (right[PARSED-1:0] ^ p_right)) == '0);
      as_here  : assert (right[PARSED] == (next_reference == 16'hffff));
    end
    if (past_valid) begin
      co_right : cover (filled[0] && right[0]);
      co_odd   : cover (filled[0] && right[0] && p_end[0] && COUNT_W'(place) > p_end + 17'd8);
      co_next  : cover (begun && is_first && load[PARSED-1] && reference == 16'hfffe);
    end
  end
