// Takes the outer IP and GRE headers out of a frame, beat by beat, and puts the link header before what was in the tunnel.
// Combinational.
//
//   beats ahead ──▶ shift by words ──┬──▶ Ethernet frame in the tunnel: 14 octets more ──▶ link header ──▶ linked
//                                    ╰──▶ inner: the packet in the tunnel stands where that of the frame did, and GRE before it
//
// The shift has at most so many words as the window lets through. Behind the last beat of a frame stand those of another one: of
// them no octet leaves.

`default_nettype none

module gre_shift
    import gre_pkg::*;
#(
    parameter int unsigned DATA_W = 256,
    parameter int unsigned WINDOW_BEATS = 2
) (
    // The beat that is shifted and those behind it, and of each whether it is of the same frame.
    input  wire logic [WINDOW_BEATS:0][DATA_W-1:0] ahead,
    input  wire logic [WINDOW_BEATS:0]             is_same,
    // Of the frame.
    input  wire logic                              is_first,
    input  wire logic [1:0]                        tags,
    input  wire logic [4:0]                        outer_words,
    input  wire logic                              has_sequence,
    input  wire logic                              ethernet,
    input  wire logic [15:0]                       protocol,
    // What leaves if the frame is stripped. Of its first beat addresses and tags are those of the frame, but for the addresses of
    // an Ethernet frame in the tunnel: they are not in here.
    output wire logic [DATA_W-1:0]                 linked,
    // Of the first beat.
    output wire inner_t                            inner
);
    localparam int unsigned OCTETS = DATA_W / 8;
    localparam int unsigned WINDOW = OCTETS * WINDOW_BEATS;
    // Words of outer headers that the window lets pass: 6 are IPv4 and GRE without options, 19 with all.
    localparam int unsigned OUTER_MIN = 6;
    localparam int unsigned OUTER_MAX = (WINDOW - 16) / 4 < 19 ? (WINDOW - 16) / 4 : 19;
    localparam int unsigned STEPS = $clog2(OUTER_MAX - OUTER_MIN + 1);
    // An Ethernet header, which goes too if one is in the tunnel.
    localparam int unsigned ETHERNET = 14;
    // Words that are wanted of the shift: a beat behind an Ethernet header.
    localparam int unsigned WORDS = (OCTETS + ETHERNET + 3) / 4;
    localparam int unsigned SOURCES = WORDS + OUTER_MAX - OUTER_MIN;

    // Shifted by words, each of which says whether it is of the frame, in steps of a power of two. Behind the sources there is
    // nothing, which the largest step may reach.
    logic [STEPS:0][SOURCES+2**STEPS-1:0][32:0] steps;
    wire logic [STEPS-1:0] more = STEPS'(outer_words - 5'(OUTER_MIN));
    always_comb begin
        steps = '0;
        for (int unsigned at = 0; at < SOURCES; at++) begin
            steps[STEPS][at] = {
                is_same[(at+OUTER_MIN)*4/OCTETS],
                ahead[(at+OUTER_MIN)*4/OCTETS][32*((at+OUTER_MIN)%(OCTETS/4))+:32]
            };
        end
        for (int step = int'(STEPS) - 1; step >= 0; step--) begin
            for (int unsigned at = 0; at < SOURCES; at++) begin
                steps[step][at] = more[step] ? steps[step+1][at+2**step] : steps[step+1][at];
            end
        end
    end
    logic [4*WORDS-1:0][7:0] octets;
    logic [WORDS-1:0]        is_here;
    always_comb begin
        for (int unsigned at = 0; at < WORDS; at++) {is_here[at], octets[4*at+:4]} = steps[0][at];
    end

    // The Ethernet header: the outer one with the type of what was in the tunnel; or, of an inner frame, its addresses, before the
    // outer tags.
    wire logic [2:0] types_here = {tags == 2'd2, tags == 2'd1, tags == 2'd0} & {3{is_first && !ethernet}};
    wire logic [2:0] moves = {tags == 2'd2, tags == 2'd1, tags == 2'd0} & {3{is_first && ethernet}};
    logic [OCTETS-1:0][7:0] shifted;
    logic [OCTETS-1:0][7:0] joined;
    always_comb begin
        for (int unsigned at = 0; at < OCTETS; at++) begin
            shifted[at] = (octets[at] & {8{!ethernet && is_here[at/4]}}) |
                (octets[at+ETHERNET] & {8{ethernet && is_here[(at+ETHERNET)/4]}});
        end
        joined = shifted;
        for (int unsigned at = 0; at < 12; at++) begin
            if (moves[1]) joined[at] = shifted[at+4];
            if (moves[2]) joined[at] = shifted[at+8];
        end
        for (int unsigned tag = 0; tag < 3; tag++) begin
            if (types_here[tag]) begin
                joined[12+4*tag] = protocol[15:8];
                joined[13+4*tag] = protocol[7:0];
            end
        end
    end
    assign linked = joined;

    // The packet in the tunnel, by words behind an Ethernet header without tags. The key is the word before it, or before that.
    logic [6:0][31:0] words;
    always_comb begin
        for (int unsigned at = 0; at < 7; at++) begin
            for (int unsigned octet = 0; octet < 4; octet++) begin
                words[at][8*(3-octet)+:8] = octets[ETHERNET+4*at+octet];
            end
        end
    end
    wire logic [1:0] key_at = tags - {1'b0, has_sequence};
    logic [3:0][31:0] keys; // from the word before that before the packet without tags, which is in place 3
    always_comb begin
        for (int unsigned octet = 0; octet < 4; octet++) begin
            keys[3][8*(3-octet)+:8] = octets[ETHERNET-8+octet];
            keys[0][8*(3-octet)+:8] = octets[ETHERNET-4+octet];
        end
        keys[1] = words[0];
        keys[2] = words[1];
    end
    assign inner = '{
        words: {tags == 2'd2 ? words[6] : words[1], tags == 2'd0 ? words[0] : words[5], words[4:2]},
        key: keys[key_at]
    };
    wire logic unused_front = &{1'b0, octets, ahead, is_here, steps, moves[0]};
endmodule

`default_nettype wire
