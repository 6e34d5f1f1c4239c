// What the parts of the core that puts packets into GRE tunnels tell each other. The codes are those of the register map,
// hdl/regs.toml.

`default_nettype none

package gre_tunnel_pkg;
    import net_pkg::COUNT_W;

    // What became of a frame: index of its counter. The names of drops are those of kaido-gre.
    typedef enum logic [4:0] {
        PASSED         = 5'd0,
        ENCAPSULATED   = 5'd1,
        TOO_BIG        = 5'd10,
        // tuser of s_axis was set: the MAC saw a wrong frame check sequence. Software never sees such a frame.
        FRAME_ERROR    = 5'd12,
        // Left to the host, unchanged.
        HOST_TAGS      = 5'd16, // more than two VLAN tags
        HOST_EXTENSION = 5'd17, // IPv6 extension headers: what is behind them may be GRE, or malformed
        HOST_DEEP      = 5'd18, // IPv4 with more than five words of options
        HOST_TUNNEL    = 5'd19, // may be a tunnel packet, for which there are rules
        HOST_CHECKSUM  = 5'd20, // a whole Ethernet frame into a tunnel with a checksum
        HOST_ROUTE     = 5'd21, // the tunnel has no next hop by the port of this core
        HOST_TTL       = 5'd22, // the last hop
        HOST_MTU       = 5'd23, // too long with its outer headers
        HOST_NUMBER    = 5'd24, // may be cut on its way: IPv4 asks for a number of its own
        HOST_SHORT     = 5'd25  // ends in its Ethernet header
    } event_t;

    localparam int unsigned TUNNELS = 8;
    localparam int unsigned TUNNEL_W = $clog2(TUNNELS);

    // Word 31 of a tunnel, bit 0 last.
    typedef struct packed {
        logic [7:0] hops;         // [23:16]
        logic [2:0] spare;        // [15:13]
        logic       host;         // [12]
        logic       copy;         // [11] as the packet in the tunnel, it may be cut on its way
        logic       clear;        // [10] it may
        logic       route;        // [9]
        logic       dscp_uniform; // [8]
        logic       ttl_uniform;  // [7]
        logic       has_checksum; // [6]
        logic       has_key;      // [5]
        logic       ethernet;     // [4]
        logic       other;        // [3] what has no IP header
        logic       ipv6;         // [2]
        logic       ipv4;         // [1]
        logic       valid;        // [0]
    } flags_t;

    // Which packets a tunnel is for. Addresses of IPv4 are the low 32 bits.
    typedef struct packed {
        logic [127:0] source;
        logic [127:0] source_mask;
        logic [127:0] destination;
        logic [127:0] destination_mask;
    } match_t;

    // What is put before them.
    typedef struct packed {
        flags_t             flags;
        logic               is_v6;
        logic [127:0]       local_address;
        logic [127:0]       remote;
        logic [31:0]        key;
        logic [47:0]        hop_dst;
        logic [47:0]        hop_src;
        logic [COUNT_W-1:0] room;
    } outer_t;
endpackage

`default_nettype wire
