// Round-robin arbiter: several requesters, one engine. A grant lasts until the engine is done.
module em_arbiter #(
    parameter int unsigned PORTS = 2
) (
    input  logic             clk,
    input  logic             rst,
    input  logic [PORTS-1:0] req,
    input  logic             done,
    output logic [PORTS-1:0] grant  // one-hot or zero
);
  logic [PORTS-1:0] last;  // one-hot: the port of the last grant
  logic [PORTS-1:0] above, first_above, first;

  // Ports above the last one come first, then all.
  assign above       = req & ~(last | (last - PORTS'(1)));
  assign first_above = above & (~above + PORTS'(1));
  assign first       = req & (~req + PORTS'(1));

  always_ff @(posedge clk) begin
    if (done) grant <= '0;
    else if (grant == '0 && req != '0) begin
      grant <= |above ? first_above : first;
      last  <= |above ? first_above : first;
    end
    if (rst) begin
      grant <= '0;
      last  <= PORTS'(1) << (PORTS - 1);
    end
  end
endmodule
