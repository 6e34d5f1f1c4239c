// Lookup pipeline of the exact-match table: one lookup a clock, no stall, 5 + HASH_REG clocks.
//
//   key -> [hash RAM] -> (XOR) -> [way RAMs] -> [compare by byte] -> [hit, id] -> [value RAM] -> out
//
// All ways are read in one clock, so a lookup sees the table as it was between two writes. A way
// that is written at the address that is read gives no defined word: it counts as empty. That is
// right for each write. A new key is not there yet; a removed key is gone; a copy that a move makes
// is not there yet, and its old place is; a word that is overwritten has its copy in another way.
// The value RAM gives the value that is written, which the engine keeps for one clock after the
// write. So a lookup sees the old or the new state of a key, and each write is one step.
module em_lookup #(
    parameter int unsigned KEY_W    = 32,
    parameter int unsigned VAL_W    = 64,
    parameter int unsigned WAYS     = 4,
    parameter int unsigned IDX_W    = 8,
    parameter int unsigned ID_W     = 10,
    parameter int unsigned LEN_W    = 16,
    parameter bit          HASH_REG = 1
) (
    input  logic                       clk,
    input  logic                       rst,
    input  logic                       live,
    input  logic                       lk_valid,
    input  logic [KEY_W-1:0]           lk_key,
    input  logic [LEN_W-1:0]           lk_len,
    output logic                       res_valid,
    output logic                       res_hit,
    output logic [ID_W-1:0]            res_id,
    output logic [VAL_W-1:0]           res_value,
    // Way RAMs, port A: address from the hash, words {valid, epoch, id, key}.
    input  logic [WAYS-1:0][IDX_W-1:0] idx,
    input  logic [WAYS-1:0]            q_valid,
    input  logic [WAYS-1:0]            q_epoch,
    input  logic [WAYS-1:0][ID_W-1:0]  q_id,
    input  logic [WAYS-1:0][KEY_W-1:0] q_key,
    // What the engine writes.
    input  logic [WAYS-1:0]            wr_way,
    input  logic [WAYS-1:0][IDX_W-1:0] wr_idx,
    input  logic                       val_we,
    input  logic [ID_W-1:0]            val_id,
    input  logic [VAL_W-1:0]           val_d,
    // Value RAM, port A.
    output logic [ID_W-1:0]            val_addr,
    input  logic [VAL_W-1:0]           val_q,
    // Counters: address now, hit in the next clock.
    output logic                       cnt_valid,
    output logic                       cnt_epoch,
    output logic [LEN_W-1:0]           cnt_len
);
  localparam int unsigned GROUPS = (KEY_W + 7) / 8;
  localparam int unsigned PRE = HASH_REG ? 2 : 1;  // clocks of the hash

  function automatic logic [GROUPS-1:0] match(input logic [KEY_W-1:0] a, input logic [KEY_W-1:0] b);
    logic [8*GROUPS-1:0] differ;
    differ = (8 * GROUPS)'(a ^ b);
    for (int unsigned g = 0; g < GROUPS; g++) match[g] = differ[8*g+:8] == '0;
  endfunction

  // Beside the hash and the read of the ways.
  logic [PRE:0]            p_valid;
  logic [KEY_W-1:0]        p_key[PRE+1];
  logic [LEN_W-1:0]        p_len[PRE+1];
  logic [WAYS-1:0]         meets;

  always_ff @(posedge clk) begin
    p_valid  <= {p_valid[PRE-1:0], lk_valid};
    p_key[0] <= lk_key;
    p_len[0] <= lk_len;
    for (int unsigned i = 1; i <= PRE; i++) begin
      p_key[i] <= p_key[i-1];
      p_len[i] <= p_len[i-1];
    end
    for (int unsigned w = 0; w < WAYS; w++) meets[w] <= wr_way[w] && wr_idx[w] == idx[w];
    if (rst) p_valid <= '0;
  end

  // Compare.
  logic                          c_valid, c_live;
  logic [LEN_W-1:0]              c_len;
  logic [WAYS-1:0][GROUPS-1:0]   c_eq;
  logic [WAYS-1:0]               c_epoch;
  logic [WAYS-1:0][ID_W-1:0]     c_id;

  always_ff @(posedge clk) begin
    c_valid <= p_valid[PRE];
    c_live  <= live;
    c_len   <= p_len[PRE];
    for (int unsigned w = 0; w < WAYS; w++) begin
      c_eq[w]    <= match(q_key[w], p_key[PRE]);
      if (!q_valid[w] || meets[w]) c_eq[w][0] <= 1'b0;
      c_epoch[w] <= q_epoch[w];
      c_id[w]    <= q_id[w];
    end
    if (rst) c_valid <= 1'b0;
  end

  // Hit and entry number. In the middle of a move two ways hit, with the same entry number.
  logic             d_valid, d_hit, d_epoch;
  logic [LEN_W-1:0] d_len;
  logic [ID_W-1:0]  d_id;
  logic [WAYS-1:0]  hits;
  logic             or_epoch;
  logic [ID_W-1:0]  or_id;

  always_comb begin
    or_epoch = 1'b0;
    or_id    = '0;
    for (int unsigned w = 0; w < WAYS; w++) begin
      hits[w]  = &c_eq[w];
      or_epoch |= hits[w] && c_epoch[w];
      or_id    |= c_id[w] & {ID_W{hits[w]}};
    end
  end

  always_ff @(posedge clk) begin
    d_valid <= c_valid;
    d_hit   <= c_valid && c_live && |hits;
    d_epoch <= or_epoch;
    d_id    <= or_id;
    d_len   <= c_len;
    if (rst) {d_valid, d_hit} <= '0;
  end

  assign val_addr  = d_id;
  assign cnt_valid = d_hit;
  assign cnt_epoch = d_epoch;
  assign cnt_len   = d_len;

  // Value. The writer keeps `val_d` for one clock after the write.
  logic val_meets;

  always_ff @(posedge clk) begin
    res_valid <= d_valid;
    res_hit   <= d_hit;
    res_id    <= d_id;
    val_meets <= val_we && val_id == d_id;
    if (rst) {res_valid, res_hit} <= '0;
  end

  assign res_value = val_meets ? val_d : val_q;
endmodule
