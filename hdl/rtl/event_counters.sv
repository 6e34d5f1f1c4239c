// Counters that one event a clock adds to. They are memory, so after reset they are cleared one by one: `ready` says when that
// is done. They wrap.

`default_nettype none

module event_counters #(
    parameter int unsigned COUNTERS = 32,
    // Bits of a counter, and of what is added.
    parameter int unsigned WIDTH = 32,
    parameter int unsigned ADD_W = 1,
    localparam int unsigned INDEX_W = COUNTERS > 1 ? $clog2(COUNTERS) : 1
) (
    input  wire logic               clk,
    input  wire logic               rst,
    output wire logic               ready,

    input  wire logic               add,
    input  wire logic [INDEX_W-1:0] index,
    input  wire logic [ADD_W-1:0]   amount,

    input  wire logic [INDEX_W-1:0] read_index,
    output wire logic [WIDTH-1:0]   read_value
);
    localparam logic [INDEX_W-1:0] LAST = INDEX_W'(COUNTERS - 1);

    logic [WIDTH-1:0]   values[COUNTERS];
    logic [INDEX_W-1:0] cleared;
    logic               clearing;

    wire logic [INDEX_W-1:0] at = clearing ? cleared : index;
    wire logic [WIDTH-1:0] value = clearing ? '0 : values[index] + WIDTH'(amount);

    assign ready = !clearing;
    assign read_value = values[read_index];

    always_ff @(posedge clk) begin
        if (clearing || add) values[at] <= value;
        if (rst) begin
            clearing <= 1'b1;
            cleared  <= '0;
        end else if (clearing) begin
            clearing <= cleared != LAST;
            cleared  <= cleared + 1'b1;
        end
    end
endmodule

`default_nettype wire
