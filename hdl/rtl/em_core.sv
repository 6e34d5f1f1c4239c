// Exact-match table without bus: lookup pipeline, engine, memories, counters.
//
// Cuckoo hashing with WAYS places of one entry a key. A way word is {valid, epoch, id, key}. The
// entry number `id` stays with a key for its life, so a move changes two way words only: value and
// counters stay where they are, at `id`.
module em_core
  import em_pkg::*;
#(
    parameter int unsigned KEY_W    = 32,  // 1..256
    parameter int unsigned VAL_W    = 64,
    parameter int unsigned WAYS     = 4,   // 2..16
    parameter int unsigned IDX_W    = 8,   // log2 of the buckets of a way, 1..20
    parameter int unsigned QUEUE_W  = 6,   // log2 of the nodes of a search; above log2(WAYS)
    parameter int unsigned LEN_W    = 16,
    parameter int unsigned PKT_W    = 40,
    parameter int unsigned BYTE_W   = 48,
    parameter bit          HASH_REG = 1,   // a register behind the hash: one clock more
    localparam int unsigned ID_W    = IDX_W + $clog2(WAYS)
) (
    input  logic              clk,
    input  logic              rst,
    output logic              live,
    output logic [ID_W:0]     used,
    // Lookup: one a clock, the answer comes 5 + HASH_REG clocks later.
    input  logic              lk_valid,
    input  logic [KEY_W-1:0]  lk_key,
    input  logic [LEN_W-1:0]  lk_len,
    output logic              res_valid,
    output logic              res_hit,
    output logic [ID_W-1:0]   res_id,
    output logic [VAL_W-1:0]  res_value,
    // Operation: inputs stay as they are until the end of the clock of `op_done`.
    input  logic              op_valid,
    input  op_t               op_code,
    input  logic [KEY_W-1:0]  op_key,
    input  logic [VAL_W-1:0]  op_value,
    input  logic [31:0]       op_arg,    // ROW: {key bit[7:0], way[3:0], row[19:0]}
    output logic              op_done,
    output status_t           op_status,
    output logic [ID_W-1:0]   op_id,
    output logic [VAL_W-1:0]  op_rvalue,  // READ and DELETE
    output logic [PKT_W-1:0]  op_pkts,
    output logic [BYTE_W-1:0] op_bytes
);
  localparam int unsigned CHUNK_W = KEY_W < 8 ? KEY_W : 8;
  localparam int unsigned CHUNKS = (KEY_W + CHUNK_W - 1) / CHUNK_W;
  localparam int unsigned HKEY_W = CHUNKS * CHUNK_W;
  localparam int unsigned WORD_W = 2 + ID_W + KEY_W;

  logic [WAYS-1:0][IDX_W-1:0] lk_idx, way_idx, hash_idx;
  logic [HKEY_W-1:0]          hash_key;
  logic [WAYS-1:0]            ld_way, way_we, way_zero;
  logic [CHUNKS-1:0]          ld_chunk;
  logic [IDX_W-1:0]           ld_word;
  logic                       wr_valid, wr_epoch, val_we, cnt_valid, cnt_epoch, ctl_epoch, cnt_match, clr;
  logic [ID_W-1:0]            wr_id, clr_id, val_addr;
  logic [KEY_W-1:0]           wr_key;
  logic [VAL_W-1:0]           val_q;
  logic [LEN_W-1:0]           cnt_len;
  logic [WAYS-1:0]            a_valid, a_epoch, b_valid, b_epoch;
  logic [WAYS-1:0][ID_W-1:0]  a_id, b_id;
  logic [WAYS-1:0][KEY_W-1:0] a_key, b_key;

  em_hash #(.KEY_W(KEY_W), .WAYS(WAYS), .IDX_W(IDX_W), .REG(HASH_REG)) hash (
      .clk,
      .a_key(HKEY_W'(lk_key)),
      .a_idx(lk_idx),
      .b_key(hash_key),
      .b_idx(hash_idx),
      .ld_way,
      .ld_chunk,
      .ld_word
  );

  for (genvar w = 0; w < WAYS; w++) begin : g_way
    em_ram #(.W (WORD_W), .AW(IDX_W)) ram (
        .clk,
        .a_addr(lk_idx[w]),
        .a_q   ({a_valid[w], a_epoch[w], a_id[w], a_key[w]}),
        .b_addr(way_idx[w]),
        .b_we  (way_we[w]),
        .b_zero(way_zero[w]),
        .b_d   ({wr_valid, wr_epoch, wr_id, wr_key}),
        .b_q   ({b_valid[w], b_epoch[w], b_id[w], b_key[w]})
    );
  end

  em_ram #(.W (VAL_W), .AW(ID_W)) values (
      .clk,
      .a_addr(val_addr),
      .a_q   (val_q),
      .b_addr(wr_id),
      .b_we  (val_we),
      .b_zero(1'b0),
      .b_d   (op_value),
      .b_q   (op_rvalue)
  );

  em_counters #(.ID_W(ID_W), .LEN_W(LEN_W), .PKT_W(PKT_W), .BYTE_W(BYTE_W)) counters (
      .clk,
      .rst,
      .rd_valid (cnt_valid),
      .rd_id    (val_addr),
      .rd_epoch (cnt_epoch),
      .rd_len   (cnt_len),
      .ctl_id   (wr_id),
      .ctl_epoch(ctl_epoch),
      .ctl_match(cnt_match),
      .ctl_pkts (op_pkts),
      .ctl_bytes(op_bytes),
      .clr,
      .clr_id
  );

  em_lookup #(
      .KEY_W(KEY_W), .VAL_W(VAL_W), .WAYS(WAYS), .IDX_W(IDX_W), .ID_W(ID_W), .LEN_W(LEN_W),
      .HASH_REG(HASH_REG)
  ) lookup (
      .clk, .rst, .live,
      .lk_valid, .lk_key, .lk_len,
      .res_valid, .res_hit, .res_id, .res_value,
      .idx(lk_idx), .q_valid(a_valid), .q_epoch(a_epoch), .q_id(a_id), .q_key(a_key),
      .wr_way(way_we), .wr_idx(way_idx),
      .val_we, .val_id(wr_id), .val_d(op_value),
      .val_addr, .val_q,
      .cnt_valid, .cnt_epoch, .cnt_len
  );

  em_engine #(
      .KEY_W(KEY_W), .WAYS(WAYS), .IDX_W(IDX_W), .ID_W(ID_W), .QUEUE_W(QUEUE_W),
      .HASH_REG(HASH_REG)
  ) engine (
      .clk, .rst, .live, .used,
      .op_valid, .op_code, .op_key, .op_arg, .op_done, .op_status, .op_id,
      .hash_key, .hash_idx, .ld_way, .ld_chunk, .ld_word,
      .way_idx, .way_we, .way_zero, .wr_valid, .wr_epoch, .wr_id, .wr_key,
      .q_valid(b_valid), .q_epoch(b_epoch), .q_id(b_id), .q_key(b_key),
      .val_we, .cnt_epoch(ctl_epoch), .cnt_match, .clr, .clr_id
  );
endmodule
