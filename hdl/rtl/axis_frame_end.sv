// Where the frame whose beat is in the oldest of some stages of an axis_window ends, if it ends in them.

`default_nettype none

module axis_frame_end #(
    parameter int unsigned DEPTH = 3,
    parameter int unsigned COUNT_W = 17
) (
    // By stage, the oldest first.
    input  wire logic [DEPTH-1:0]              valid,
    input  wire logic [DEPTH-1:0]              last,
    input  wire logic [DEPTH-1:0]              user,
    input  wire logic [DEPTH-1:0][COUNT_W-1:0] count,
    output wire logic                          is_known,
    // With an error.
    output wire logic                          has_error,
    output wire logic [COUNT_W-1:0]            length
);
    logic [COUNT_W+1:0] found;
    always_comb begin
        found = '0;
        for (int at = int'(DEPTH) - 1; at >= 0; at--) begin
            if (valid[at] && last[at]) found = {user[at], 1'b1, count[at]};
        end
    end
    assign {has_error, is_known, length} = found;
endmodule

`default_nettype wire
