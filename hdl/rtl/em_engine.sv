// Engine of the exact-match table: carries out one operation after the other while lookups run.
//
// An insert whose places are all taken searches a chain of moves breadth-first, without a write.
// The search ends after 2**QUEUE_W nodes. The chain is then carried out from its free end: each
// entry is written to its new place first, and its old place is overwritten by the next write. A
// key of the table is therefore in one way, or in two with equal words, at each clock.
//
// Breadth-first matters: the first chain found is a shortest one, so no place is in it twice.
//
// `op_*` inputs stay as they are from `op_valid` to the end of the clock of `op_done`: the engine
// and the lookup pipeline read the key and the value from them, in the clock of `op_done` too.
module em_engine
  import em_pkg::*;
#(
    parameter int unsigned KEY_W    = 32,
    parameter int unsigned WAYS     = 4,
    parameter int unsigned IDX_W    = 8,
    parameter int unsigned ID_W     = 10,
    parameter int unsigned QUEUE_W  = 6,
    parameter bit          HASH_REG = 1,
    localparam int unsigned CHUNK_W = KEY_W < 8 ? KEY_W : 8,
    localparam int unsigned CHUNKS  = (KEY_W + CHUNK_W - 1) / CHUNK_W,
    localparam int unsigned HKEY_W  = CHUNKS * CHUNK_W
) (
    input  logic                       clk,
    input  logic                       rst,
    output logic                       live,
    output logic [ID_W:0]              used,
    // Operation.
    input  logic                       op_valid,
    input  op_t                        op_code,
    input  logic [KEY_W-1:0]           op_key,
    input  logic [31:0]                op_arg,
    output logic                       op_done,
    output status_t                    op_status,
    output logic [ID_W-1:0]            op_id,
    // Hash, port B, and its load.
    output logic [HKEY_W-1:0]          hash_key,
    input  logic [WAYS-1:0][IDX_W-1:0] hash_idx,
    output logic [WAYS-1:0]            ld_way,
    output logic [CHUNKS-1:0]          ld_chunk,
    output logic [IDX_W-1:0]           ld_word,
    // Way RAMs, port B.
    output logic [WAYS-1:0][IDX_W-1:0] way_idx,
    output logic [WAYS-1:0]            way_we,
    output logic [WAYS-1:0]            way_zero,  // a read gives zero
    output logic                       wr_valid,
    output logic                       wr_epoch,
    output logic [ID_W-1:0]            wr_id,
    output logic [KEY_W-1:0]           wr_key,
    input  logic [WAYS-1:0]            q_valid,
    input  logic [WAYS-1:0]            q_epoch,
    input  logic [WAYS-1:0][ID_W-1:0]  q_id,
    input  logic [WAYS-1:0][KEY_W-1:0] q_key,
    // Value RAM, port B (address `wr_id`), and counters (address `wr_id`).
    output logic                       val_we,
    output logic                       cnt_epoch,
    input  logic                       cnt_match,
    output logic                       clr,
    output logic [ID_W-1:0]            clr_id
);
  localparam int unsigned ENTRIES = WAYS << IDX_W;
  localparam int unsigned NODES = 1 << QUEUE_W;
  localparam int unsigned GROUPS = (KEY_W + 7) / 8;
  // Clocks from the write that removes an entry to the last counter write of a lookup that saw it
  // are 4; a lookup that came in before CLEAR is through after 7.
  localparam logic [3:0] DRAIN = 4'd3;
  localparam logic [3:0] DRAIN_ALL = 4'd9;

  typedef enum logic [4:0] {
    IDLE,
    HASH,
    HASH2,
    READ,
    COMPARE,
    DECIDE,
    WRITE,
    WAIT,
    COUNTERS,
    DONE,
    PUSH,
    POP,
    NODE,
    NODE_READ,
    NODE_KEY,
    MOVE,
    MOVE_POP,
    CLEAR_WAIT,
    CLEAR,
    ROW_ZERO,
    ROW_KEY,
    ROW_READ,
    ROW_XOR,
    ROW_WRITE
  } state_t;

  state_t                     state;
  logic [HKEY_W-1:0]          hkey;
  logic [3:0]                 timer;
  logic [7:0]                 count;  // ROW: word of the table that is read
  logic                       searching, moving;
  status_t                    status;

  // The entry at hand: the hit, or the entry that moves.
  logic                       ent_epoch;
  logic [ID_W-1:0]            ent_id;
  // The way of the next write; its bucket is that of the key at hand.
  logic [WAYS-1:0]            dst_way;
  logic                       sel_new;

  // Search queue: node = {parent, way, bucket}. Nodes 0..WAYS-1 are the places of the new key.
  logic [QUEUE_W:0]           queue_wr, queue_rd;
  logic [QUEUE_W-1:0]         node, parent;
  logic [WAYS-1:0]            node_way, push_way;
  logic [IDX_W-1:0]           node_idx;
  logic [QUEUE_W-1:0]         nq_parent;
  logic [WAYS-1:0]            nq_way;
  logic [IDX_W-1:0]           nq_idx;
  logic [IDX_W-1:0]           push_idx;
  logic                       push;

  // Free list: a ring of {epoch, id}. `free_q` is its head.
  logic [ID_W-1:0]            head, tail;
  logic                       free_epoch;
  logic [ID_W-1:0]            free_id;
  logic                       removed, inserted;

  // ---- compare -------------------------------------------------------------------------------
  logic [WAYS-1:0][GROUPS-1:0] eq;
  logic [WAYS-1:0]             eq_used, hit, free, place, sel;
  logic                        sel_epoch;
  logic [ID_W-1:0]             sel_id;
  logic [KEY_W-1:0]            sel_key;

  logic [WAYS-1:0][8*GROUPS-1:0] differ;

  always_ff @(posedge clk) begin
    for (int unsigned w = 0; w < WAYS; w++)
      for (int unsigned g = 0; g < GROUPS; g++) eq[w][g] <= differ[w][8*g+:8] == '0;
    eq_used <= q_valid;
    for (int unsigned w = 0; w < WAYS; w++) if (!q_valid[w]) eq[w][0] <= 1'b0;
  end

  always_comb begin
    for (int unsigned w = 0; w < WAYS; w++) begin
      differ[w] = (8 * GROUPS)'(q_key[w] ^ hkey[KEY_W-1:0]);
      hit[w] = &eq[w];
    end
    free = ~eq_used & (eq_used + WAYS'(1));  // the lowest zero
    place = |hit && !searching ? hit : free;
    // Of a node, the other ways are zero.
    sel = hit | {WAYS{state == NODE_KEY}};
    sel_epoch = 1'b0;
    sel_id = '0;
    sel_key = '0;
    push_idx = '0;
    for (int unsigned w = 0; w < WAYS; w++) begin
      sel_epoch |= q_epoch[w] && sel[w];
      sel_id |= q_id[w] & {ID_W{sel[w]}};
      sel_key |= q_key[w];
      push_idx |= hash_idx[w] & {IDX_W{push_way[w]}};
    end
  end

  // ---- outputs -------------------------------------------------------------------------------
  logic table_write;
  assign table_write = state == WRITE && (sel_new || op_code == OP_DELETE) || state == MOVE;
  assign clr         = state == CLEAR;
  assign clr_id      = tail;
  assign hash_key    = hkey;

  // Address of port B: one of the engine's own for all ways, or the buckets of the key at hand.
  logic [IDX_W-1:0] own_idx;
  logic             own;
  assign own     = clr || state == NODE_READ;
  assign own_idx = clr ? tail[IDX_W-1:0] : node_idx;

  always_comb begin
    for (int unsigned w = 0; w < WAYS; w++) begin
      way_we[w]   = clr || table_write && dst_way[w];
      way_idx[w]  = own ? own_idx : hash_idx[w];
      way_zero[w] = !(state == READ || state == COMPARE || state == NODE_READ && node_way[w]);
    end
  end

  assign wr_valid  = !clr && op_code != OP_DELETE;
  assign wr_epoch  = sel_new ? free_epoch : ent_epoch;
  assign wr_id     = sel_new ? free_id : ent_id;
  assign wr_key    = hkey[KEY_W-1:0];
  assign val_we    = state == WRITE && op_code != OP_DELETE;
  assign cnt_epoch = ent_epoch;
  assign op_done   = state == DONE;
  assign op_status = status;
  assign op_id     = wr_id;

  // ---- hash rows -----------------------------------------------------------------------------
  // A row makes words of the table of its byte: word[count + 2**bit] = word[count] ^ row, for each count below 2**bit. The key at
  // hand is zero but for this byte. Rows come in ascending order of key bits; before the first, word 0 of all tables of its way
  // is set to 0.
  logic [CHUNKS-1:0] row_chunk;
  logic [WAYS-1:0]   row_way;
  logic [7:0]        row_bit, row_word;
  logic [IDX_W-1:0]  row;
  logic              in_row;
  assign row_bit  = 8'd1 << op_arg[26:24];
  assign row      = op_arg[IDX_W-1:0];
  assign row_word = (count | row_bit & {8{state == ROW_XOR}}) & {8{in_row}};
  assign in_row   = state == ROW_KEY || state == ROW_XOR;
  assign ld_word  = state == ROW_ZERO ? '0 : push_idx ^ row;

  always_comb begin
    for (int unsigned c = 0; c < CHUNKS; c++) row_chunk[c] = op_arg[31:27] == 5'(c);
    for (int unsigned w = 0; w < WAYS; w++) row_way[w] = op_arg[23:20] == 4'(w);
    ld_way   = push_way & {WAYS{state == ROW_ZERO || state == ROW_WRITE}};
    ld_chunk = row_chunk | {CHUNKS{state == ROW_ZERO}};
  end

  // ---- key at hand -----------------------------------------------------------------------------
  // That of the operation, of a node, or a word of a row. But of a node `sel_key` is zero here, so no multiplexer is needed.
  logic             of_op;
  logic [KEY_W-1:0] own_key;
  assign of_op   = state == IDLE || state == MOVE;
  assign own_key = op_key & {KEY_W{of_op}} | sel_key;

  always_ff @(posedge clk) begin
    if (of_op || state == NODE_KEY || in_row)
      for (int unsigned c = 0; c < CHUNKS; c++) begin
        hkey[c*CHUNK_W+:CHUNK_W] <= CHUNK_W'(HKEY_W'(own_key) >> c * CHUNK_W) | row_word[CHUNK_W-1:0];
        if (in_row && !row_chunk[c] || state == IDLE && op_code == OP_ROW) hkey[c*CHUNK_W+:CHUNK_W] <= '0;
      end
  end

  // ---- queue and free list -------------------------------------------------------------------
  assign push = state == PUSH && !(|(push_way & node_way)) && !queue_wr[QUEUE_W];

  em_ram_sdp #(
      .W (QUEUE_W + WAYS + IDX_W),
      .AW(QUEUE_W)
  ) queue (
      .clk,
      .raddr(state == MOVE_POP ? parent : queue_rd[QUEUE_W-1:0]),
      .q    ({nq_parent, nq_way, nq_idx}),
      .we   (push),
      .waddr(queue_wr[QUEUE_W-1:0]),
      .d    ({node, push_way, push_idx})
  );

  em_ram_sdp #(
      .W (1 + ID_W),
      .AW(ID_W)
  ) free_list (
      .clk,
      .raddr(head),
      .q    ({free_epoch, free_id}),
      .we   (clr || op_done && removed),
      .waddr(tail),
      .d    (clr ? {1'b0, clr_id} : {ent_epoch ^ cnt_match, ent_id})
  );

  function automatic logic [ID_W-1:0] next_id(input logic [ID_W-1:0] id);
    next_id = id + ID_W'(1);
    if ($countones(ENTRIES) != 1 && id == ID_W'(ENTRIES - 1)) next_id = '0;
  endfunction

  always_ff @(posedge clk) begin
    if (clr) begin
      head <= '0;
      tail <= next_id(tail);
      used <= '0;
    end else if (state == CLEAR_WAIT) begin
      tail <= '0;
    end else if (op_done && inserted) begin
      head <= next_id(head);
      used <= used + (ID_W + 1)'(1);
    end else if (op_done && removed) begin
      tail <= next_id(tail);
      used <= used - (ID_W + 1)'(1);
    end
    if (rst) {used, tail} <= '0;
  end

  // What comes when the buckets of the key at hand are known.
  state_t hashed;
  assign hashed = !moving ? READ : sel_new ? WRITE : MOVE;

  // ---- steps ---------------------------------------------------------------------------------
  always_ff @(posedge clk) begin
    case (state)
      IDLE: begin
        searching <= 1'b0;
        moving    <= 1'b0;
        sel_new   <= 1'b0;
        inserted  <= 1'b0;
        removed   <= 1'b0;
        status    <= ST_OK;
        count     <= '0;
        push_way  <= row_way;
        timer     <= DRAIN_ALL;
        if (op_valid) begin
          state <= DONE;
          case (op_code)
            OP_START: live <= 1'b1;
            OP_CLEAR: begin
              live  <= 1'b0;
              state <= CLEAR_WAIT;
            end
            OP_ROW:
              if (live) status <= ST_DENIED;
              else state <= op_arg[31:24] == '0 ? ROW_ZERO : ROW_KEY;
            default:
              if (live) state <= HASH;
              else status <= ST_DENIED;
          endcase
        end
      end

      HASH:    state <= HASH_REG ? HASH2 : hashed;
      HASH2:   state <= hashed;
      READ:    state <= COMPARE;
      COMPARE: state <= DECIDE;

      DECIDE: begin
        dst_way   <= place;
        push_way  <= WAYS'(1);
        if (!searching) begin
          ent_epoch <= sel_epoch;
          ent_id    <= sel_id;
          node_way  <= '0;
          queue_wr  <= '0;
          queue_rd  <= '0;
        end
        timer <= DRAIN;
        if (searching) begin
          state <= |free ? MOVE : PUSH;
        end else if (|hit) begin
          case (op_code)
            OP_INSERT: begin
              status <= ST_DUPLICATE;
              state  <= DONE;
            end
            OP_READ:   state <= COUNTERS;
            default:   state <= WRITE;
          endcase
        end else if (op_code == OP_INSERT || op_code == OP_PUT) begin
          sel_new <= |free;
          state   <= |free ? WRITE : PUSH;
        end else begin
          status <= ST_NOT_FOUND;
          state  <= DONE;
        end
      end

      WRITE: begin
        inserted <= sel_new;
        removed  <= op_code == OP_DELETE;
        state    <= op_code == OP_DELETE ? WAIT : DONE;
      end

      // A removed entry: lookups that saw it add to its counters before they are read.
      WAIT: begin
        timer <= timer - 4'd1;
        if (timer == '0) state <= COUNTERS;
      end
      COUNTERS: state <= DONE;
      DONE:     state <= IDLE;

      // ---- search ----
      PUSH: begin
        push_way <= push_way << 1;
        if (push) queue_wr <= queue_wr + (QUEUE_W + 1)'(1);
        if (push_way[WAYS-1]) state <= POP;
      end
      POP: begin
        searching <= 1'b1;
        node      <= queue_rd[QUEUE_W-1:0];
        queue_rd  <= queue_rd + (QUEUE_W + 1)'(1);
        if (queue_rd == queue_wr) begin
          status <= ST_FULL;
          state  <= DONE;
        end else state <= NODE;
      end
      NODE: begin
        parent   <= nq_parent;
        node_way <= nq_way;
        node_idx <= nq_idx;
        state    <= NODE_READ;
      end
      NODE_READ: state <= NODE_KEY;
      NODE_KEY: begin
        ent_epoch <= sel_epoch;
        ent_id    <= sel_id;
        state     <= HASH;
      end

      // ---- moves, from the free end of the chain to the place of the new key ----
      MOVE: begin
        moving  <= 1'b1;
        dst_way <= node_way;
        sel_new <= node < QUEUE_W'(WAYS);
        state   <= node < QUEUE_W'(WAYS) ? HASH : MOVE_POP;
      end
      MOVE_POP: begin
        node  <= parent;
        state <= NODE;
      end

      // ---- clear ----
      CLEAR_WAIT: begin
        timer <= timer - 4'd1;
        if (timer == '0) state <= CLEAR;
      end
      CLEAR:
        if (tail == ID_W'(ENTRIES - 1)) state <= op_valid && op_code == OP_CLEAR ? DONE : IDLE;

      // ---- load of a row ----
      ROW_ZERO: state <= ROW_KEY;
      ROW_KEY:  state <= ROW_READ;
      ROW_READ: state <= ROW_XOR;
      ROW_XOR: begin
        count <= count + 8'd1;
        state <= ROW_WRITE;
      end
      ROW_WRITE: state <= |(count & row_bit) ? DONE : ROW_KEY;
      default: state <= IDLE;
    endcase

    if (rst) begin
      state    <= CLEAR;
      live     <= 1'b0;
      status   <= ST_OK;
      inserted <= 1'b0;
      removed  <= 1'b0;
    end
  end

  logic unused;
  assign unused = ^{op_arg[19:IDX_W], NODES};
endmodule
