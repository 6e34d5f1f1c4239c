// Two-port block RAM of the exact-match table: port A reads, port B reads or writes.
//
// A read on A of the address that B writes in the same clock has no defined value: block RAMs of
// some families give neither the old nor the new word. The table never uses such a word. With
// EM_COLLIDE (simulation) the model returns the inverted word, so that a use of it is seen.
module em_ram #(
    parameter int unsigned W  = 8,
    parameter int unsigned AW = 4
) (
    input  logic          clk,
    input  logic [AW-1:0] a_addr,
    output logic [ W-1:0] a_q,
    input  logic [AW-1:0] b_addr,
    input  logic          b_we,
    input  logic          b_zero,  // a read gives zero
    input  logic [ W-1:0] b_d,
    output logic [ W-1:0] b_q
);
  (* ram_style = "block" *)
  logic [W-1:0] mem[2**AW];

  always_ff @(posedge clk) begin
    if (b_we) mem[b_addr] <= b_d;
    else if (b_zero) b_q <= '0;
    else b_q <= mem[b_addr];
  end

  always_ff @(posedge clk) begin
`ifdef EM_COLLIDE
    a_q <= b_we && a_addr == b_addr ? ~mem[a_addr] : mem[a_addr];
`else
    a_q <= mem[a_addr];
`endif
  end
endmodule
