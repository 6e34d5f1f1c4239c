// Lookup part of an exact-match table in external memory (HBM, DRAM): up to 2**SLOT_W lookups in
// flight, answers in the order of the lookups.
//
//   lookup -> slot, two reads (one line of each half of the table, one memory channel each)
//   line   -> compared with the key of its slot, in any order
//   answer -> when the oldest slot has both lines
//
// A line holds LINE_N entries {valid, key, value}. The hash (`em_hash`) stands in front.
//
// Changes. A line is written in one step, so an update in place is seen whole. A move writes the
// copy first. It may overwrite the old place only when all lookups that were accepted before the
// copy was written are answered: the writer notes `accepted` and waits until `answered` has come
// that far. Without the wait a lookup may read the new place too early and the old one too late.
module em_table_mem #(
    parameter int unsigned KEY_W  = 32,
    parameter int unsigned VAL_W  = 64,
    parameter int unsigned ADDR_W = 22,
    parameter int unsigned LINE_N = 4,
    parameter int unsigned SLOT_W = 6,
    localparam int unsigned ENTRY_W = 1 + KEY_W + VAL_W
) (
    input  logic                            clk,
    input  logic                            rst,
    input  logic                            lk_valid,
    output logic                            lk_ready,
    input  logic [KEY_W-1:0]                lk_key,
    input  logic [1:0][ADDR_W-1:0]          lk_line,
    output logic                            res_valid,
    output logic                            res_hit,
    output logic [VAL_W-1:0]                res_value,
    output logic [31:0]                     accepted,
    output logic [31:0]                     answered,
    // Two read channels. Requests with a tag; lines come back in any order, and are always taken.
    output logic [1:0]                      rd_valid,
    input  logic [1:0]                      rd_ready,
    output logic [1:0][ADDR_W-1:0]          rd_addr,
    output logic [1:0][SLOT_W-1:0]          rd_tag,
    input  logic [1:0]                      line_valid,
    input  logic [1:0][SLOT_W-1:0]          line_tag,
    input  logic [1:0][LINE_N*ENTRY_W-1:0]  line_data
);
  localparam int unsigned SLOTS = 1 << SLOT_W;

  logic [SLOT_W-1:0] first, next;
  logic              full;
  logic              take;
  logic [1:0]        both;  // of the oldest slot
  logic [1:0]        hit;
  logic [1:0][VAL_W-1:0] value;

  assign next     = accepted[SLOT_W-1:0];
  assign first    = answered[SLOT_W-1:0];
  assign full     = accepted - answered == 32'(SLOTS);
  assign lk_ready = !full && &rd_ready;
  assign take     = lk_valid && lk_ready;
  assign rd_valid = {2{lk_valid && !full && &rd_ready}};
  assign rd_addr  = lk_line;
  assign rd_tag   = {next, next};

  for (genvar c = 0; c < 2; c++) begin : g_channel
    logic [KEY_W-1:0]   keys[SLOTS];
    logic [VAL_W:0]     found[SLOTS];  // {hit, value}
    logic [SLOTS-1:0]   here;
    logic               any;
    logic [VAL_W-1:0]   chosen;
    logic [ENTRY_W-1:0] entry;

    always_comb begin
      any    = 1'b0;
      chosen = '0;
      for (int unsigned i = 0; i < LINE_N; i++) begin
        entry = line_data[c][i*ENTRY_W+:ENTRY_W];
        if (entry[ENTRY_W-1] && entry[VAL_W+:KEY_W] == keys[line_tag[c]]) begin
          any    = 1'b1;
          chosen = chosen | entry[VAL_W-1:0];
        end
      end
    end

    always_ff @(posedge clk) begin
      if (take) keys[next] <= lk_key;
      if (line_valid[c]) found[line_tag[c]] <= {any, chosen};
    end

    always_ff @(posedge clk) begin
      if (line_valid[c]) here[line_tag[c]] <= 1'b1;
      if (take) here[next] <= 1'b0;
      if (rst) here <= '0;
    end

    assign both[c] = here[first];
    assign {hit[c], value[c]} = found[first];
  end

  logic answer;
  assign answer = accepted != answered && &both;

  always_ff @(posedge clk) begin
    res_valid <= answer;
    res_hit   <= |hit;
    // In the middle of a move both lines hold the key; either value is right.
    res_value <= hit[0] ? value[0] : value[1];
    accepted  <= accepted + 32'(take);
    answered  <= answered + 32'(answer);
    if (rst) begin
      res_valid <= 1'b0;
      accepted  <= '0;
      answered  <= '0;
    end
  end
endmodule
