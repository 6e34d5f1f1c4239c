// Block RAM with one read port and one write port. As in `em_ram`, a read of the address that is
// written in the same clock has no defined value.
module em_ram_sdp #(
    parameter int unsigned W  = 8,
    parameter int unsigned AW = 4
) (
    input  logic          clk,
    input  logic [AW-1:0] raddr,
    output logic [ W-1:0] q,
    input  logic          we,
    input  logic [AW-1:0] waddr,
    input  logic [ W-1:0] d
);
  (* ram_style = "block" *)
  logic [W-1:0] mem[2**AW];

  always_ff @(posedge clk) begin
    if (we) mem[waddr] <= d;
  end

  always_ff @(posedge clk) begin
`ifdef EM_COLLIDE
    q <= we && waddr == raddr ? ~mem[raddr] : mem[raddr];
`else
    q <= mem[raddr];
`endif
  end
endmodule
