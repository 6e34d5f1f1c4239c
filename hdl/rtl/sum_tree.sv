// Adds unsigned numbers by a tree of adders of two each. Combinational.
//
// Synthesis makes one sum of adders that follow each other, of full adders in LUTs: two of them a bit. An adder of two numbers is a
// carry chain of one a bit. A bit of zero below each number keeps the adders apart; it costs nothing.

`default_nettype none

module sum_tree #(
    parameter int unsigned NUMBERS = 16,
    parameter int unsigned WIDTH = 16,
    // Bits of the sum, which must hold it.
    parameter int unsigned SUM_W = WIDTH + $clog2(NUMBERS)
) (
    input  wire logic [NUMBERS-1:0][WIDTH-1:0] numbers,
    output wire logic [SUM_W-1:0]              sum
);
    // A node is the sum of the two that have twice its place and one more. The root is in place 1; in place 0 is nothing.
    logic [2*NUMBERS-1:0][SUM_W-1:0] nodes;
    logic [SUM_W:0]                  added;
    always_comb begin
        nodes = '0;
        added = '0;
        for (int unsigned at = 0; at < NUMBERS; at++) nodes[NUMBERS+at] = SUM_W'(numbers[at]);
        for (int at = int'(NUMBERS) - 1; at > 0; at--) begin
            added     = {nodes[2*at], 1'b0} + {nodes[2*at+1], 1'b0};
            nodes[at] = added[SUM_W:1];
        end
    end
    assign sum = nodes[1];
    wire logic unused_place = &{1'b0, nodes[0], added[0]};
endmodule

`default_nettype wire
