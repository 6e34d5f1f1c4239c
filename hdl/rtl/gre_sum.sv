// The checksum of GRE (RFC 2784 2.5), summed up as the beats of a frame pass: GRE header and payload, to the end of the IP packet.
// Behind that is padding. A packet of odd length is summed as if an octet of zero were behind it.
//
//   the stage where headers are read ──▶ which octets count, their sum ──▶ total ──▶ right, by stage
//
// The total is of the frame up to and with the beat of its stage. It holds when that beat has the end of the packet, or one before
// it did. GRE begins at an even octet, so the words of the sum are those of the frame.

`default_nettype none

module gre_sum
    import net_pkg::*;
#(
    parameter int unsigned DATA_W = 256,
    // The stage where headers are read: the frame's beat before is in the stage before.
    parameter int unsigned PARSED = 2,
    // Octets of a frame that are never summed.
    parameter int unsigned BEFORE = 14 + 20
) (
    input  wire logic                     clk,
    input  wire logic [PARSED-1:0]        load,
    // The beat in the stage where headers are read.
    input  wire logic                     is_first,
    input  wire logic [DATA_W/8-1:0][7:0] octets,
    // Of its frame, if it is the first: words from an Ethernet header without tags to GRE, and where the packet ends.
    input  wire logic [4:0]               gre_at,
    input  wire logic [COUNT_W-1:0]       packet_end,
    // Of the frame, up to and with the beat in the stage before.
    output wire logic [15:0]              total,
    // By stage.
    output wire logic [PARSED:0]          right
);
    localparam int unsigned OCTETS = DATA_W / 8;
    localparam int unsigned HALVES = OCTETS / 2;
    // Bits of the sum of a beat and of what was before it, and of the number of a word of 16 bits where GRE begins.
    localparam int unsigned SUM_W = 16 + $clog2(HALVES + 1);
    localparam int unsigned SKIP_W = 7;

    // Octets of a beat that count: from a word on, and before an octet.
    function automatic logic [OCTETS-1:0] between(input logic [SKIP_W-1:0] skip, input logic [COUNT_W-1:0] left);
        for (int unsigned at = 0; at < OCTETS; at++) between[at] = skip <= SKIP_W'(at / 2) && left > COUNT_W'(at);
    endfunction

    // Of the beat behind the one in the stage before.
    logic [SKIP_W-1:0]  skip;
    logic [COUNT_W-1:0] left;
    logic [OCTETS-1:0]  counted;
    logic [15:0]        summed;
    assign total = summed;

    wire logic [SKIP_W-1:0] skip_here = is_first ? SKIP_W'(7) + {1'b0, gre_at, 1'b0} : skip;
    wire logic [COUNT_W-1:0] left_here = is_first ? packet_end : left;
    wire logic [SKIP_W-1:0] skip_next = skip_here > SKIP_W'(HALVES) ? skip_here - SKIP_W'(HALVES) : '0;
    wire logic [COUNT_W-1:0] left_next = left_here > COUNT_W'(OCTETS) ? left_here - COUNT_W'(OCTETS) : '0;

    // The first beat may end before GRE can begin.
    wire logic [OCTETS-1:0] counts_first;
    if (OCTETS > BEFORE) begin : g_long
        assign counts_first = between(skip_here, left_here);
    end else begin : g_short
        assign counts_first = '0;
    end
    wire logic [OCTETS-1:0] counts = is_first ? counts_first : counted;

    logic [SUM_W-1:0] sum;
    always_comb begin
        sum = is_first ? '0 : SUM_W'(summed);
        for (int unsigned at = 0; at < HALVES; at++) begin
            sum += SUM_W'({octets[2*at] & {8{counts[2*at]}}, octets[2*at+1] & {8{counts[2*at+1]}}});
        end
    end
    // The carries are added, which takes two steps. They are few: where the second is one, what is left is not 0xffff.
    wire logic [16:0] folded = {1'b0, sum[15:0]} + 17'(sum[SUM_W-1:16]);
    wire logic right_here = folded == 17'h0ffff;

    logic [PARSED-1:0] right_kept;
    assign right = {right_here, right_kept};
    always_ff @(posedge clk) begin
        if (load[PARSED-1]) begin
            skip    <= skip_next;
            left    <= left_next;
            counted <= between(skip_next, left_next);
            summed  <= folded[15:0] + {15'd0, folded[16]};
        end
        for (int unsigned at = 0; at < PARSED; at++) begin
            if (load[at]) right_kept[at] <= right[at+1];
        end
    end
endmodule

`default_nettype wire
