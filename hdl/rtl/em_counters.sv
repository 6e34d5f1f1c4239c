// Packet and byte counters of the exact-match table, one pair an entry, one hit a clock.
//
// A hit reads the pair, adds, and writes it in the next clock. A hit on the entry of the hit before
// takes the sum from a register, because its read meets the write. `fresh` counters need no write:
// a word holds the epoch of the entry that it counts for; a word of another epoch counts as zero.
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

  logic              hit, epoch, forward, ctl_forward;
  logic [  ID_W-1:0] id;
  logic [ LEN_W-1:0] len;
  logic [ PKT_W-1:0] q_pkts, pkts, sum_pkts, last_pkts, c_pkts;
  logic [BYTE_W-1:0] q_bytes, bytes, sum_bytes, last_bytes, c_bytes;
  logic              q_epoch, c_epoch, last_epoch;
  logic              we;
  logic [  ID_W-1:0] waddr;
  logic [     W-1:0] word;

  assign we    = hit || clr;
  assign waddr = clr ? clr_id : id;
  assign word  = clr ? {1'b1, {(W - 1) {1'b0}}} : {epoch, sum_pkts, sum_bytes};

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

  always_comb begin
    pkts  = q_pkts;
    bytes = q_bytes;
    if (forward) begin
      pkts  = last_pkts;
      bytes = last_bytes;
    end else if (q_epoch != epoch) begin
      pkts  = '0;
      bytes = '0;
    end
    sum_pkts  = pkts + PKT_W'(1);
    sum_bytes = bytes + BYTE_W'(len);
  end

  always_ff @(posedge clk) begin
    hit         <= rd_valid;
    id          <= rd_id;
    epoch       <= rd_epoch;
    len         <= rd_len;
    forward     <= hit && rd_id == id;
    ctl_forward <= hit && ctl_id == id;
    if (rst) hit <= 1'b0;
  end

  always_ff @(posedge clk) begin
    if (hit) begin
      last_pkts  <= sum_pkts;
      last_bytes <= sum_bytes;
      last_epoch <= epoch;
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
