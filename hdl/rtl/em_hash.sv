// Keyed hash of the exact-match table: H3, one bucket number a way.
//
// h_w(key) is the XOR of the rows of way w whose key bit is set. The XOR over eight key bits is
// read from a table of 256 words in block RAM, so a hash costs one RAM read and one XOR of
// KEY_W/8 words. Port A serves lookups, port B the engine; both answer after 1 + REG clocks.
//
// Loading. The engine writes the tables through port B: the word at `b_key` in the tables `ld_chunk` of way `ld_way`.
module em_hash #(
    parameter int unsigned KEY_W = 32,
    parameter int unsigned WAYS  = 4,
    parameter int unsigned IDX_W = 8,
    parameter bit          REG   = 1,
    localparam int unsigned CHUNK_W = KEY_W < 8 ? KEY_W : 8,
    localparam int unsigned CHUNKS  = (KEY_W + CHUNK_W - 1) / CHUNK_W
) (
    input  logic                        clk,
    input  logic [CHUNKS*CHUNK_W-1:0]   a_key,
    output logic [WAYS-1:0][IDX_W-1:0]  a_idx,
    input  logic [CHUNKS*CHUNK_W-1:0]   b_key,
    output logic [WAYS-1:0][IDX_W-1:0]  b_idx,
    input  logic [WAYS-1:0]             ld_way,
    input  logic [CHUNKS-1:0]           ld_chunk,
    input  logic [IDX_W-1:0]            ld_word
);
  for (genvar w = 0; w < WAYS; w++) begin : g_way
    logic [CHUNKS-1:0][IDX_W-1:0] a_q, b_q;
    logic [IDX_W-1:0] a_xor, b_xor;

    for (genvar c = 0; c < CHUNKS; c++) begin : g_chunk
      em_ram #(
          .W (IDX_W),
          .AW(CHUNK_W)
      ) ram (
          .clk,
          .a_addr(a_key[c*CHUNK_W+:CHUNK_W]),
          .a_q   (a_q[c]),
          .b_addr(b_key[c*CHUNK_W+:CHUNK_W]),
          .b_we  (ld_way[w] && ld_chunk[c]),
          .b_zero(1'b0),
          .b_d   (ld_word),
          .b_q   (b_q[c])
      );
    end

    always_comb begin
      a_xor = '0;
      b_xor = '0;
      for (int unsigned c = 0; c < CHUNKS; c++) begin
        a_xor ^= a_q[c];
        b_xor ^= b_q[c];
      end
    end

    if (REG) begin : g_reg
      always_ff @(posedge clk) begin
        a_idx[w] <= a_xor;
        b_idx[w] <= b_xor;
      end
    end else begin : g_comb
      assign a_idx[w] = a_xor;
      assign b_idx[w] = b_xor;
    end
  end
endmodule
