// What all cores know of Ethernet and IP, in one place.

`default_nettype none

package net_pkg;
    // Bits of a count of octets: IPv6 has up to 65575.
    localparam int unsigned COUNT_W = 17;

    localparam logic [15:0] TYPE_IPV4 = 16'h0800;
    localparam logic [15:0] TYPE_IPV6 = 16'h86dd;

    // IANA "Assigned Internet Protocol Numbers", as far as they are asked for.
    typedef enum logic [7:0] {
        HOP_BY_HOP          = 8'd0,
        ICMP                = 8'd1,
        TCP                 = 8'd6,
        UDP                 = 8'd17,
        ROUTING             = 8'd43,
        FRAGMENT            = 8'd44,
        AH                  = 8'd51,
        ICMPV6              = 8'd58,
        NO_NEXT_HEADER      = 8'd59,
        DESTINATION_OPTIONS = 8'd60,
        SCTP                = 8'd132
    } protocol_t;

    // IEEE 802.1Q, 802.1ad, and what was used before it.
    function automatic logic is_vlan(input logic [15:0] ethertype);
        return ethertype == 16'h8100 || ethertype == 16'h88a8 || ethertype == 16'h9100;
    endfunction

    // Hop-by-hop, routing, fragment, authentication, destination options (RFC 8200 4).
    function automatic logic is_extension(input logic [7:0] protocol);
        return protocol == HOP_BY_HOP || protocol == ROUTING || protocol == FRAGMENT || protocol == AH ||
            protocol == DESTINATION_OPTIONS;
    endfunction

    // Congestion marks of a packet that leaves a tunnel (RFC 6040 figure 4): ECT(1) is 1, ECT(0) is 2, CE is 3.
    function automatic logic is_unmarkable(input logic [1:0] inner, input logic [1:0] outer);
        return inner == 2'd0 && outer == 2'd3;
    endfunction

    function automatic logic [1:0] marks_of(input logic [1:0] inner, input logic [1:0] outer);
        return inner == 2'd0 ? 2'd0 : outer == 2'd3 ? 2'd3 : inner == 2'd2 && outer == 2'd1 ? 2'd1 : inner;
    endfunction
endpackage

`default_nettype wire
