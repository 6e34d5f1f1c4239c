// Reading of IPv4 (RFC 791) and IPv6 (RFC 8200) headers.
//
// A packet is read as words of 32 bits, the octet that comes first in bits [31:24].

`default_nettype none

package ip_pkg;
    import net_pkg::*;

    // Words of a header that `ip_read` sees: IPv6, or IPv4 with five words of options.
    localparam int unsigned IP_WORDS = 10;
    // Bits of the number of a word in a frame, and the last one that a walk reads.
    localparam int unsigned AT_W = 6;
    localparam int unsigned WALK_MAX = 47;

    // A one's-complement sum of up to sixteen halfwords in one (RFC 1071): the carries may bring another one.
    function automatic logic [15:0] fold(input logic [20:0] sum);
        logic [16:0] once;
        once = {1'b0, sum[15:0]} + {12'd0, sum[20:16]};
        return once[15:0] + {15'd0, once[16]};
    endfunction

    // What is read of an IP header.
    typedef struct packed {
        logic               is_v6;
        logic               malformed;   // neither family, or its lengths lie
        logic               deep;        // IPv4 with more options than are read
        logic [COUNT_W-1:0] total;       // octets of the packet
        logic [3:0]         words;       // of the header
        logic [7:0]         tos;
        logic [19:0]        flow;        // label of IPv6
        logic [7:0]         hops;
        logic [7:0]         protocol;    // of IPv6 the next header
        logic               is_part;     // IPv4: a fragment
        logic [15:0]        checksum;    // IPv4
        logic [20:0]        sum;         // of the header of IPv4, its checksum with it
        logic [127:0]       source;      // of IPv4 the low 32 bits
        logic [127:0]       destination;
    } ip_t;

    // Reads a header of whose packet so many octets can be there.
    function automatic ip_t ip_read(input logic [IP_WORDS-1:0][31:0] words, input logic [COUNT_W-1:0] available);
        logic is_v4, is_v6;
        logic [3:0]         ihl;
        logic [COUNT_W-1:0] total;
        is_v4 = words[0][31:28] == 4'd4;
        is_v6 = words[0][31:28] == 4'd6;
        ihl = words[0][27:24];
        total = is_v6 ? COUNT_W'(40) + COUNT_W'(words[1][31:16]) : COUNT_W'(words[0][15:0]);
        ip_read.is_v6 = is_v6;
        ip_read.malformed = (!is_v4 && !is_v6) || total > available ||
            (is_v4 && (ihl < 4'd5 || total < COUNT_W'({ihl, 2'b00}))) ||
            (is_v6 && words[1][31:16] == 16'd0 && words[1][15:8] != NO_NEXT_HEADER);
        ip_read.deep = is_v4 && ihl > 4'(IP_WORDS);
        ip_read.total = total;
        ip_read.words = is_v6 ? 4'd10 : ihl;
        ip_read.tos = is_v6 ? words[0][27:20] : words[0][23:16];
        ip_read.flow = words[0][19:0];
        ip_read.hops = is_v6 ? words[1][7:0] : words[2][31:24];
        ip_read.protocol = is_v6 ? words[1][15:8] : words[2][23:16];
        ip_read.is_part = is_v4 && words[1][13:0] != 14'd0;
        ip_read.checksum = words[2][15:0];
        ip_read.source = is_v6 ? {words[2], words[3], words[4], words[5]} : {96'd0, words[3]};
        ip_read.destination = is_v6 ? {words[6], words[7], words[8], words[9]} : {96'd0, words[4]};
        ip_read.sum = '0;
        for (int unsigned at = 0; at < IP_WORDS; at++) begin
            if (at < 5 || 4'(at) < ihl)
                ip_read.sum = ip_read.sum + 21'(words[at][31:16]) + 21'(words[at][15:0]);
        end
    endfunction

    // Whether a header of IPv4 with this sum, its checksum with it, is right.
    function automatic logic is_right(input logic [20:0] sum);
        return fold(sum) == 16'hffff;
    endfunction

    // The checksum of IPv4 when class of service and hop count change (RFC 1624 equation 3); the latter becomes one less.
    function automatic logic [15:0] checksum_after(
        input logic [15:0] checksum, input logic [7:0] tos_old, input logic [7:0] tos_new
    );
        return ~fold({5'd0, ~checksum} + 21'h0feff + 21'h0ff00 + {13'd0, ~tos_old} + {13'd0, tos_new});
    endfunction

    // A walk over the extension headers of IPv6: one a step.
    typedef struct packed {
        logic               walking;   // at an extension header
        logic               malformed;
        logic               deep;      // goes on behind what is read
        logic               begun;     // one is behind
        logic               fragment;  // a fragment header is
        logic               is_part;   // by it the packet is not whole
        logic [7:0]         protocol;  // of what is here
        logic [AT_W-1:0]    at;        // the word where it is
        logic [COUNT_W-1:0] left;      // octets of the packet from there on
    } walk_t;

    // At the first header behind the IP header, in word `at`.
    function automatic walk_t walk_start(
        input logic is_v6, input logic [7:0] protocol, input logic is_part, input logic [AT_W-1:0] at,
        input logic [COUNT_W-1:0] left
    );
        walk_start = '{
            walking: is_v6 && is_extension(protocol),
            malformed: 1'b0,
            deep: 1'b0,
            begun: 1'b0,
            fragment: 1'b0,
            is_part: is_part,
            protocol: protocol,
            at: at,
            left: left
        };
    endfunction

    // Over the header whose first two octets these are, and of a fragment header the place (its offset, and whether more follow). It
    // is a multiple of eight octets, but AH of four.
    function automatic walk_t walk_step(
        input walk_t walk, input logic [7:0] next, input logic [7:0] len, input logic [13:0] place
    );
        logic [9:0] words;
        logic       wrong;
        logic       is_data;
        walk_step = walk;
        words = walk.protocol == FRAGMENT ? 10'd2 :
            walk.protocol == AH ? {2'd0, len} + 10'd2 : {1'd0, len, 1'b0} + 10'd2;
        wrong = (walk.protocol == HOP_BY_HOP && walk.begun) || (walk.protocol == FRAGMENT && walk.fragment) ||
            (walk.protocol == AH && len == 8'd0) ||
            walk.left < COUNT_W'(8) || walk.left < COUNT_W'({words, 2'b00});
        // The data of a fragment that is not the first are no header.
        is_data = walk.protocol == FRAGMENT && place[13:1] != 13'd0;
        if (walk.walking) begin
            walk_step.malformed = wrong;
            walk_step.deep = 10'(walk.at) + words > 10'(WALK_MAX);
            walk_step.begun = 1'b1;
            if (walk.protocol == FRAGMENT) begin
                walk_step.fragment = 1'b1;
                walk_step.is_part = place != 14'd0;
            end
            walk_step.protocol = next;
            walk_step.walking = is_extension(next) && !is_data && !wrong && !walk_step.deep;
            walk_step.at = walk.at + AT_W'(words);
            walk_step.left = walk.left - COUNT_W'({words, 2'b00});
        end
    endfunction
endpackage

`default_nettype wire
