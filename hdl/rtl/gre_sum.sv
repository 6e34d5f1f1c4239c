// The checksum of GRE (RFC 2784 2.5), summed up as the beats of a frame pass: GRE header and payload, to the end of the IP packet.
// Behind that is padding. A packet of odd length is summed as if an octet of zero were behind it.
//
//   the stage where headers are read ──▶ which octets count, their sum ──▶ total ──▶ right, by stage
//
// The total is of the frame up to and with the beat of its stage. It holds when that beat has the end of the packet, or one before
// it did. GRE begins at an even octet, so the words of the sum are those of the frame.
//
// The sum takes one clock, or two: then it is made in parts, which are added in the next clock. With EARLY the parts are made
// before the beat is in the stage where headers are read, with PIPELINED while it is there.

`default_nettype none

module gre_sum
    import net_pkg::*;
#(
    parameter int unsigned DATA_W = 256,
    // The stage where headers are read: the frame's beat before is in the stage before.
    parameter int unsigned PARSED = 2,
    // Octets of a frame that are never summed.
    parameter int unsigned BEFORE = 14 + 20,
    // Not both. EARLY takes a first beat of which nothing is summed.
    parameter bit          EARLY = 1'b0,
    parameter bit          PIPELINED = 1'b0,
    // The last stage whose sum is known.
    localparam int unsigned KNOWN = PIPELINED ? PARSED - 1 : PARSED,
    localparam int unsigned LOADS = EARLY ? PARSED + 1 : PARSED
) (
    input  wire logic                     clk,
    input  wire logic [LOADS-1:0]         load,
    // The beat in the stage where headers are read. With EARLY the octets are those of the beat that comes into it.
    input  wire logic                     is_first,
    input  wire logic [DATA_W/8-1:0][7:0] octets,
    // Of its frame, if it is the first: words from an Ethernet header without tags to GRE, and where the packet ends.
    input  wire logic [4:0]               gre_at,
    input  wire logic [COUNT_W-1:0]       packet_end,
    // Of the frame, up to and with the beat that was summed last.
    output wire logic [15:0]              total,
    // By stage.
    output wire logic [KNOWN:0]           right
);
    localparam int unsigned OCTETS = DATA_W / 8;
    localparam int unsigned HALVES = OCTETS / 2;
    // Bits of an octet's place in a beat, of a word's of 16 bits where GRE begins, and of the sum of a beat and of what was before.
    localparam int unsigned PLACE_W = $clog2(OCTETS);
    localparam int unsigned SKIP_W = 7;
    localparam int unsigned SUM_W = 16 + $clog2(HALVES + 1);

    initial begin
        assert (2**PLACE_W == OCTETS && (!EARLY || (OCTETS <= BEFORE && !PIPELINED)));
    end

    // Octets of a beat that count: from a word on, if it is in the beat, and before an octet, if the end is in the beat.
    function automatic logic [OCTETS-1:0] from(input logic is_past, input logic [PLACE_W-2:0] place);
        logic [HALVES-1:0] halves;
        halves = is_past ? '0 : {HALVES{1'b1}} << place;
        for (int unsigned at = 0; at < OCTETS; at++) from[at] = halves[at/2];
    endfunction
    function automatic logic [OCTETS-1:0] to(input logic is_past, input logic [PLACE_W-1:0] place);
        return is_past ? '1 : ~({OCTETS{1'b1}} << place);
    endfunction

    // Of the beat behind the one in the stage before.
    logic [SKIP_W-1:0]  skip;
    logic [COUNT_W-1:0] left;
    logic [OCTETS-1:0]  counted;

    wire logic [SKIP_W-1:0] skip_here = is_first ? SKIP_W'(7) + {1'b0, gre_at, 1'b0} : skip;
    wire logic [COUNT_W-1:0] left_here = is_first ? packet_end : left;
    // A beat has a power of two of octets: of the beat behind the upper bits are less by one. If they were zero, all is.
    wire logic [SKIP_W-PLACE_W:0] skip_beats = skip_here[SKIP_W-1:PLACE_W-1];
    wire logic [COUNT_W-PLACE_W-1:0] left_beats = left_here[COUNT_W-1:PLACE_W];
    wire logic [SKIP_W-1:0] skip_next = {skip_beats - 1'b1, skip_here[PLACE_W-2:0]} & {SKIP_W{skip_beats != '0}};
    wire logic [COUNT_W-1:0] left_next = {left_beats - 1'b1, left_here[PLACE_W-1:0]} & {COUNT_W{left_beats != '0}};
    wire logic [OCTETS-1:0] counted_next =
        from(skip_beats[SKIP_W-PLACE_W:1] != '0, skip_next[PLACE_W-2:0]) &
        to(left_beats[COUNT_W-PLACE_W-1:1] != '0, left_next[PLACE_W-1:0]);

    // The first beat may end before GRE can begin.
    wire logic [OCTETS-1:0] counts_first;
    if (OCTETS > BEFORE) begin : g_long
        assign counts_first =
            from(skip_beats != '0, skip_here[PLACE_W-2:0]) & to(left_beats != '0, left_here[PLACE_W-1:0]);
    end else begin : g_short
        assign counts_first = '0;
    end
    wire logic [OCTETS-1:0] counts = is_first ? counts_first : counted;

    logic [HALVES-1:0][15:0] halves;
    always_comb begin
        for (int unsigned at = 0; at < OCTETS; at++) begin
            halves[at/2][8*(1-at%2)+:8] = octets[at] & {8{EARLY ? counted_next[at] : counts[at]}};
        end
    end

    always_ff @(posedge clk) begin
        if (load[PARSED-1]) begin
            skip    <= skip_next;
            left    <= left_next;
            counted <= counted_next;
        end
    end

    // A sum is right if it is 0xffff after its carries are added. They are few: where they bring another one, what is left is not
    // 0xffff.
    function automatic logic is_right(input logic [SUM_W-1:0] sum);
        return sum[15:0] == ~16'(sum[SUM_W-1:16]);
    endfunction
    function automatic logic [15:0] fold(input logic [SUM_W-1:0] sum);
        logic [16:0] once;
        once = {1'b0, sum[15:0]} + 17'(sum[SUM_W-1:16]);
        return once[15:0] + {15'd0, once[16]};
    endfunction

    wire logic right_here;
    if (EARLY || PIPELINED) begin : g_sum
        localparam int unsigned PARTS = HALVES / 4;
        logic [PARTS-1:0][17:0]      parts;
        wire logic [PARTS-1:0][17:0] parts_next;
        for (genvar at = 0; at < PARTS; at++) begin : g_part
            sum_tree #(.NUMBERS(4), .WIDTH(16)) tree (.numbers(halves[4*at+:4]), .sum(parts_next[at]));
        end
        // The carries of the sum are added to that of the next beat.
        logic                   restarts;
        logic [SUM_W-1:0]       summed;
        wire logic [SUM_W-1:0]  summed_next;
        wire logic              parts_load = load[LOADS-1];
        wire logic              summed_load = load[LOADS-2];
        wire logic              restarts_now = EARLY ? is_first : restarts;
        wire logic [SUM_W-1:0]  summed_before = restarts_now ? '0 : summed;
        sum_tree #(.NUMBERS(PARTS + 2), .WIDTH(18), .SUM_W(SUM_W)) all (
            .numbers({EARLY && is_first ? '0 : parts, 2'd0, summed_before[15:0], 18'(summed_before[SUM_W-1:16])}),
            .sum(summed_next)
        );
        always_ff @(posedge clk) begin
            if (parts_load) begin
                parts    <= parts_next;
                restarts <= is_first;
            end
            if (summed_load) summed <= summed_next;
        end
        assign total = fold(summed);
        assign right_here = is_right(summed_next);
    end else begin : g_sum
        logic [15:0]            summed;
        wire logic [15:0]       summed_before = is_first ? '0 : summed;
        wire logic [SUM_W-1:0]  sum;
        sum_tree #(.NUMBERS(HALVES + 1), .WIDTH(16)) all (.numbers({summed_before, halves}), .sum(sum));
        always_ff @(posedge clk) begin
            if (load[PARSED-1]) summed <= fold(sum);
        end
        assign total = summed;
        assign right_here = is_right(sum);
    end
    wire logic unused_counts = &{1'b0, counts};

    logic [KNOWN-1:0] right_kept;
    assign right = {right_here, right_kept};
    always_ff @(posedge clk) begin
        for (int unsigned at = 0; at < KNOWN; at++) begin
            if (load[at]) right_kept[at] <= right[at+1];
        end
    end
endmodule

`default_nettype wire
