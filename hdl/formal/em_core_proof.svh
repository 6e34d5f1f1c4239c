// Proof of the exact-match table, inside `em_core` (see hdl/formal/run). With EM_BASE: from reset.
// Without: from any state between two operations that satisfies `sound`; the proof covers the
// longest operation, so `sound` between operations is an invariant by induction over operations.
//
// `probe` is any key. The memories are read as arrays of registers.
  localparam int unsigned BUCKETS = 1 << IDX_W;
  localparam int unsigned ENTRIES = WAYS << IDX_W;
  localparam int unsigned LATENCY = 5 + HASH_REG;
  localparam int unsigned LONGEST = `EM_LONGEST;  // clocks of the longest operation

  logic past_valid = 1'b0;
  logic [KEY_W-1:0] any, first_any, probe;  // `any` is undriven: any value; `probe` is the one of the first clock
  assign probe = past_valid ? first_any : any;
  always_ff @(posedge clk) if (!past_valid) first_any <= any;
  logic [7:0] age = '0;
  always_ff @(posedge clk) begin
    past_valid <= 1'b1;
    if (age != '1) age <= age + 8'd1;
  end

  // The contents of the memories, one word each.
  logic [WAYS-1:0][BUCKETS-1:0][WORD_W-1:0]    way_mem;
  logic [WAYS-1:0][(1<<KEY_W)-1:0][IDX_W-1:0]  hash_mem;
  logic [ENTRIES-1:0][VAL_W-1:0]               val_mem;
  logic [ENTRIES-1:0][ID_W:0]                  free_mem;
  for (genvar w = 0; w < WAYS; w++) begin : g_peek
    for (genvar i = 0; i < BUCKETS; i++) assign way_mem[w][i] = g_way[w].ram.mem[i];
    for (genvar k = 0; k < (1 << KEY_W); k++)
      assign hash_mem[w][k] = hash.g_way[w].g_chunk[0].ram.mem[k];
  end
  for (genvar e = 0; e < ENTRIES; e++) begin : g_peek_id
    assign val_mem[e]  = values.mem[e];
    assign free_mem[e] = engine.free_list.mem[e];
  end

  // ---- what a sound table is ----
  function automatic logic used_at(input int unsigned w, input int unsigned i);
    used_at = way_mem[w][i][WORD_W-1];
  endfunction
  function automatic logic [KEY_W-1:0] key_at(input int unsigned w, input int unsigned i);
    key_at = way_mem[w][i][KEY_W-1:0];
  endfunction
  function automatic logic [ID_W-1:0] id_at(input int unsigned w, input int unsigned i);
    id_at = way_mem[w][i][KEY_W+:ID_W];
  endfunction

  logic places_ok, single_ok, ids_ok, count_ok;
  logic [ID_W:0] entries;
  logic [ENTRIES-1:0] id_used, id_free;
  logic [ID_W-1:0] from_head;
  always_comb begin
    places_ok = 1'b1;  // a key is in its bucket
    single_ok = 1'b1;  // a key is in one way
    ids_ok    = 1'b1;  // an entry number is used once or free once
    entries   = '0;
    id_used   = '0;
    id_free   = '0;
    for (int unsigned w = 0; w < WAYS; w++)
      for (int unsigned i = 0; i < BUCKETS; i++)
        if (used_at(w, i)) begin
          if (hash_mem[w][key_at(w, i)] != IDX_W'(i)) places_ok = 1'b0;
          for (int unsigned v = 0; v < WAYS; v++)
            for (int unsigned j = 0; j < BUCKETS; j++)
              if ((v != w || j != i) && used_at(v, j) && key_at(v, j) == key_at(w, i))
                single_ok = 1'b0;
          entries = entries + (ID_W + 1)'(1);
          if (id_used[id_at(w, i)]) ids_ok = 1'b0;
          id_used[id_at(w, i)] = 1'b1;
        end
    for (int unsigned e = 0; e < ENTRIES; e++) begin
      // Ring: `ENTRIES - used` words from `head` on are free.
      from_head = ID_W'(e) - engine.head;
      if ({1'b0, from_head} < (ID_W + 1)'(ENTRIES) - used) begin
        if (id_free[free_mem[e][ID_W-1:0]]) ids_ok = 1'b0;
        id_free[free_mem[e][ID_W-1:0]] = 1'b1;
      end
    end
    if ((id_used ^ id_free) != '1) ids_ok = 1'b0;
    count_ok = used == entries && ID_W'(engine.tail - engine.head) == ID_W'(ENTRIES - used);
  end
  logic sound, idle;
  // The engine takes the key of an operation together with what the ways give, which is zero then.
  logic zero_ok;
  assign zero_ok = {b_valid, b_epoch, b_id, b_key} == '0;
  assign sound = places_ok && single_ok && ids_ok && count_ok && zero_ok;
  assign idle  = engine.state == 5'd0;

  logic held_valid = 1'b0;  // an operation runs

  // ---- assumptions ----
  // Lookups and operations come at any time; an operation is held until it is done.
  always_comb begin
    // The hash is any function, so keys can be renamed: a proof for key 0 is one for all keys.
    assume (probe == '0);
`ifdef EM_BASE
    assume (rst == !past_valid);
`else
    assume (!rst);
    if (!past_valid) begin
      assume (sound && idle && live);
      assume (lookup.p_valid == '0 && !lookup.c_valid && !lookup.d_valid && !lookup.res_valid);
      assume (!lookup.d_hit && !lookup.res_hit);
    end
`endif
`ifdef EM_PATH
    // An insert that comes in the first clock and finds its places taken; one operation only.
    assume (op_valid == (age == '0 || held_valid) && op_code == OP_INSERT);
    assume (!lk_valid);
    assume (op_key <= KEY_W'(1));  // as below: the probe, or another key
`endif
    assume (op_code inside {OP_INSERT, OP_UPDATE, OP_DELETE, OP_READ, OP_PUT}
`ifdef EM_BASE
            || op_code == OP_START
`endif
    );
  end
  op_t              held_code;
  logic [KEY_W-1:0] held_key;
  logic [VAL_W-1:0] held_value;
  always_ff @(posedge clk) begin
    held_valid <= op_valid && !op_done && !rst;
    held_code  <= op_code;
    held_key   <= op_key;
    held_value <= op_value;
  end
  always_comb
    if (held_valid) assume (op_valid && op_code == held_code && op_key == held_key && op_value == held_value);

  // ---- the probe in the table ----
  logic [WAYS-1:0] has;
  logic [WAYS-1:0][ID_W:0] tag;  // {epoch, id}
  logic present;
  logic [ID_W:0] any_tag;
  always_comb begin
    any_tag = '0;
    for (int unsigned w = 0; w < WAYS; w++) begin
      has[w] = 1'b0;
      tag[w] = '0;
      for (int unsigned i = 0; i < BUCKETS; i++)
        if (used_at(w, i) && key_at(w, i) == probe && hash_mem[w][probe] == IDX_W'(i)) begin
          has[w] = 1'b1;
          tag[w] = way_mem[w][i][KEY_W+:ID_W+1];
        end
      if (has[w]) any_tag = tag[w];
    end
    present = |has;
  end
  logic [VAL_W-1:0] probe_value;
  assign probe_value = val_mem[any_tag[ID_W-1:0]];

  logic live_now;
  assign live_now = live && past_valid;

  // History over the life of a lookup.
  logic [LATENCY:0] was_present = '0, was_absent = '0, was_looked = '0;
  logic [VAL_W-1:0] was_value[LATENCY+1];
  always_ff @(posedge clk) begin
    was_present  <= {was_present[LATENCY-1:0], present && !rst};
    was_absent   <= {was_absent[LATENCY-1:0], !present};
    was_looked   <= {was_looked[LATENCY-1:0], lk_valid && lk_key == probe && !rst && live};
    was_value[0] <= probe_value;
    for (int unsigned i = 1; i <= LATENCY; i++) was_value[i] <= was_value[i-1];
  end

  logic [7:0] op_clocks = '0;
  always_ff @(posedge clk) op_clocks <= op_valid && !op_done ? op_clocks + 8'd1 : '0;

  logic started = 1'b0;  // the first clock has passed
  logic probe_deleted;
  assign probe_deleted = op_valid && op_code == OP_DELETE && op_key == probe;
  logic was_deleted = 1'b0, was_there = 1'b0, was_missing = 1'b0, was_added = 1'b0;
  logic [VAL_W-1:0] stable_value;
  logic was_written = 1'b0;
  always_ff @(posedge clk) begin
    was_deleted  <= probe_deleted;
    was_there    <= present && !rst && !clr;
    was_missing  <= !present && !rst && !clr;
    was_added    <= op_valid && op_code inside {OP_INSERT, OP_PUT} && op_key == probe;
    was_written  <= op_valid && op_code inside {OP_UPDATE, OP_PUT} && op_key == probe;
    stable_value <= probe_value;
  end

  always_ff @(posedge clk) begin
    if (past_valid && !rst) begin
      // Between operations the table is sound.
      if (idle) begin
        as_places : assert (places_ok);
        as_single : assert (single_ok);
        as_ids : assert (ids_ok);
        as_count : assert (count_ok);
        if (live) as_zero : assert (zero_ok);
      end
      // At each clock: one copy, or copies that are equal, and only while an entry moves.
      if (live) begin
        for (int unsigned w = 0; w < WAYS; w++)
          if (has[w]) assert (tag[w] == any_tag);
        if (!single_ok) as_moving : assert (engine.moving);
        as_counted : assert (places_ok);
      end
      // A key goes by its own DELETE only, and comes by its own INSERT or PUT only.
      if (was_there) as_stays : assert (present || was_deleted);
      if (was_missing) as_absent : assert (!present || was_added);
      // Its value changes by its own UPDATE or PUT only, in place.
      if (was_there && present) as_value : assert (probe_value == stable_value || was_written);
      // Lookups.
      as_answer : assert (!was_looked[LATENCY-1] || res_valid);
      if (was_looked[LATENCY-1]) begin
        if (&was_present[LATENCY-1:0]) begin
          as_hit : assert (res_hit);
          as_old_or_new : assert (res_value == was_value[LATENCY-1] ||
                                 res_value == (present ? probe_value : was_value[0]));
        end
        if (&was_absent[LATENCY-1:0]) as_miss : assert (!res_hit);
        if (res_hit && &was_present[LATENCY-1:0]) as_id : assert (res_id == any_tag[ID_W-1:0] || !present);
      end
      // Operations end, with the right status.
      as_bounded : assert (op_clocks < 8'(LONGEST));
      if (op_code inside {OP_UPDATE, OP_READ} && live) as_ten : assert (op_clocks < 8'd10);
      if (op_done && op_key == probe && live && op_code != OP_START) begin
        case (op_code)
          OP_INSERT: as_insert : assert (op_status == ST_OK && present && probe_value == op_value ||
                                        op_status == ST_DUPLICATE && present ||
                                        op_status == ST_FULL && !present);
          OP_PUT: as_put : assert (op_status == ST_OK && present && probe_value == op_value ||
                                  op_status == ST_FULL && !present);
          OP_UPDATE: as_update : assert (op_status == ST_OK && present && probe_value == op_value ||
                                        op_status == ST_NOT_FOUND && !present);
          OP_DELETE: as_delete : assert (op_status inside {ST_OK, ST_NOT_FOUND} && !present);
          OP_READ: as_read : assert (op_status == ST_OK && present && op_rvalue == probe_value ||
                                    op_status == ST_NOT_FOUND && !present);
          default: ;
        endcase
      end
    end
`ifdef EM_BASE
    if (past_valid && !live && idle) as_empty : assert (used == '0 && entries == '0);
    if (past_valid) begin
      co_started : cover (live && idle);
      co_insert : cover (live && used == (ID_W + 1)'(1));
    end
`elsif EM_PATH
    if (past_valid) begin
      co_move   : cover (op_done && op_status == ST_OK && engine.moving);
      co_chain  : cover (op_done && op_status == ST_OK && engine.moving && age > 8'd40);
      co_copies : cover (&has && engine.moving);
    end
`else
    if (past_valid) begin
      co_update   : cover (op_done && op_code == OP_UPDATE && op_status == ST_OK);
      co_delete   : cover (op_done && op_code == OP_DELETE && op_status == ST_OK);
      co_put_new  : cover (op_done && op_code == OP_PUT && op_status == ST_OK && age < 8'd12);
      co_replaced : cover (was_looked[LATENCY-1] && res_hit && &was_present[LATENCY-1:0] &&
                           res_value != was_value[LATENCY-1]);
      co_meets    : cover (|lookup.meets && lookup.p_valid[LATENCY-4]);
      co_idle     : cover (idle && age > 8'd12 && op_valid);
    end
`endif
  end
