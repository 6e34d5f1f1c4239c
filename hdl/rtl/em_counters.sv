// Packet and byte counters of the exact-match table, one pair an entry, one hit a clock.
//
// A hit reads the pair, adds, and writes: three clocks. A hit on the entry of one of the two hits
// before takes their sum, because its read comes too early. A new entry needs no write of zero: a
// word holds the epoch of the entry that it counts for; a word of another epoch counts as zero.
// Control reads through a second copy of the memory, also when hits come in each clock.
module em_counters #(
    parameter int unsigned ID_W   = 10,
    parameter int unsigned LEN_W  = 16,
    parameter int unsigned PKT_W  = 40,
    parameter int unsigned BYTE_W = 48
) (
    input  logic              clk,
    input  logic              rst,
    // A hit: read address in the clock before, length and epoch with the hit.
    input  logic              rd_valid,
    input  logic [  ID_W-1:0] rd_id,
    input  logic              rd_epoch,
    input  logic [ LEN_W-1:0] rd_len,
    // Control: the answer comes one clock after the address. `ctl_match`: the entry had a hit.
    input  logic [  ID_W-1:0] ctl_id,
    input  logic              ctl_epoch,
    output logic              ctl_match,
    output logic [ PKT_W-1:0] ctl_pkts,
    output logic [BYTE_W-1:0] ctl_bytes,
    // Clear: writes zero with epoch 1. Only while no hit is in the pipeline.
    input  logic              clr,
    input  logic [  ID_W-1:0] clr_id
);
  localparam int unsigned W = 1 + PKT_W + BYTE_W;

  // r_: word read. s_: operand in a register, sum, write. last_: the sum written before.
  logic              r_hit, r_epoch, s_hit, s_epoch, last_epoch;
  logic              forward_sum, forward_last, ctl_forward, is_stale;
  logic [  ID_W-1:0] r_id, s_id;
  logic [ LEN_W-1:0] r_len, s_len;
  logic [ PKT_W-1:0] q_pkts, pkts, s_pkts, sum_pkts, last_pkts, c_pkts;
  logic [BYTE_W-1:0] q_bytes, bytes, s_bytes, sum_bytes, last_bytes, c_bytes;
  logic              q_epoch, c_epoch;
  logic              we;
  logic [  ID_W-1:0] waddr;
  logic [     W-1:0] word;

  assign we    = s_hit || clr;
  assign waddr = clr ? clr_id : s_id;
  // The sum is zero without a hit.
  assign word  = {clr || s_epoch, sum_pkts, sum_bytes};

  em_ram_sdp #(.W (W), .AW(ID_W)) ram_hit (
      .clk,
      .raddr(rd_id),
      .q    ({q_epoch, q_pkts, q_bytes}),
      .we,
      .waddr,
      .d    (word)
  );

  em_ram_sdp #(.W (W), .AW(ID_W)) ram_ctl (
      .clk,
      .raddr(ctl_id),
      .q    ({c_epoch, c_pkts, c_bytes}),
      .we,
      .waddr,
      .d    (word)
  );

  // A word of another epoch is cleared by the reset of the operand's register: a multiplexer less.
  assign is_stale = !forward_sum && !forward_last && q_epoch != r_epoch;

  always_comb begin
    pkts  = q_pkts;
    bytes = q_bytes;
    if (forward_sum) begin
      pkts  = sum_pkts;
      bytes = sum_bytes;
    end else if (forward_last) begin
      pkts  = last_pkts;
      bytes = last_bytes;
    end
  end

  assign sum_pkts  = s_pkts + PKT_W'(s_hit);
  assign sum_bytes = s_bytes + BYTE_W'(s_len);

  always_ff @(posedge clk) begin
    r_hit        <= rd_valid;
    r_id         <= rd_id;
    r_epoch      <= rd_epoch;
    r_len        <= rd_len;
    forward_sum  <= r_hit && rd_id == r_id;
    forward_last <= s_hit && rd_id == s_id;
    ctl_forward  <= s_hit && ctl_id == s_id;

    s_hit   <= r_hit;
    s_id    <= r_id;
    s_epoch <= r_epoch;
    s_len   <= r_len;
    s_pkts  <= pkts;
    s_bytes <= bytes;
    if (is_stale) {s_pkts, s_bytes} <= '0;
    if (!r_hit || rst) {s_pkts, s_bytes, s_len} <= '0;
    if (rst) {r_hit, s_hit} <= '0;
  end

  always_ff @(posedge clk) begin
    if (s_hit) begin
      last_pkts  <= sum_pkts;
      last_bytes <= sum_bytes;
      last_epoch <= s_epoch;
    end
  end

  always_comb begin
    ctl_match = (ctl_forward ? last_epoch : c_epoch) == ctl_epoch;
    ctl_pkts  = '0;
    ctl_bytes = '0;
    if (ctl_match) begin
      ctl_pkts  = ctl_forward ? last_pkts : c_pkts;
      ctl_bytes = ctl_forward ? last_bytes : c_bytes;
    end
  end
endmodule
