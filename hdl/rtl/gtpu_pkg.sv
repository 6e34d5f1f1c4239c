// What the parts of gtpu_decap and gtpu_encap tell each other. The codes and the words of a session are those of the register map,
// hdl/regs.toml.

`default_nettype none

package gtpu_pkg;
    import net_pkg::*;
    import ip_pkg::*;

    // What became of a packet: index of its counter. The names of drops are those of kaido-upf and kaido-engine.
    typedef enum logic [4:0] {
        FORWARDED       = 5'd1,
        IP_MALFORMED    = 5'd2,
        IP_CHECKSUM     = 5'd3,
        UDP_MALFORMED   = 5'd4,
        GTPU_MALFORMED  = 5'd5,
        INNER_MALFORMED = 5'd6,
        CONGESTION_MARK = 5'd7,
        NO_PDR          = 5'd8,
        UE_SPOOFED      = 5'd9,
        NOT_ROUTED      = 5'd10,
        GATE_CLOSED     = 5'd11,
        FAR_DROP        = 5'd12,
        // tuser of s_axis was set: the MAC saw a wrong frame check sequence. Software never sees such a frame.
        FRAME_ERROR     = 5'd13,
        // Left to the host, unchanged.
        HOST_OTHER      = 5'd16, // not for this port, tags, no IP, no packet of a tunnel
        HOST_DEEP       = 5'd17, // headers that end behind what is read
        HOST_EXTENSION  = 5'd18, // IPv6 extension headers: any before UDP, more than the steps of a packet of a UE
        HOST_FRAGMENT   = 5'd19, // a fragment of a tunnel packet
        HOST_SIGNALLING = 5'd20, // a GTP-U message that is no G-PDU, or one with an extension that must be understood
        HOST_CHAIN      = 5'd21, // more GTP-U extension headers than the steps
        HOST_MISS       = 5'd22, // no session
        HOST_SESSION    = 5'd23, // one whose rules the host applies
        HOST_ROUTE      = 5'd24, // to a destination with a route of its own
        HOST_TTL        = 5'd25, // the last hop: ICMP
        HOST_MTU        = 5'd26, // longer than may leave: ICMP, or fragments
        HOST_CHECKSUM   = 5'd27  // the UDP checksum cannot be told from the packet's own
    } event_t;

    // The first reason stands: those behind it are not asked.
    function automatic event_t also(input event_t earlier, input logic is_met, input event_t because);
        return earlier == FORWARDED && is_met ? because : earlier;
    endfunction

    function automatic logic is_host(input event_t because);
        return because >= HOST_OTHER;
    endfunction

    typedef enum logic [1:0] {
        ACTION_FORWARD = 2'd0,
        ACTION_DROP    = 2'd1, // FAR
        ACTION_CLOSED  = 2'd2, // the gate of a QER
        ACTION_HOST    = 2'd3
    } action_t;

    // Own addresses of GTP-U of each family; an endpoint is one of them, those of IPv4 first.
    localparam int unsigned LOCALS = 2;
    localparam int unsigned ENDPOINT_W = 2;
    localparam int unsigned HOPS = 16;
    localparam int unsigned HOP_W = 4;
    // Destinations with a route of their own.
    localparam int unsigned ROUTES_V4 = 8;
    localparam int unsigned ROUTES_V6 = 4;

    // The value of a tunnel's session, and its key: octets as many as are compared at once.
    typedef struct packed {
        logic [5:0]            spare;
        logic [ENDPOINT_W-1:0] endpoint;
        logic [31:0]           teid;
    } tunnel_t;
    typedef struct packed {
        logic [63:0]      prefix;   // words 3 and 2
        logic [31:0]      address;  // word 1
        logic [12:0]      spare;    // word 0
        logic [HOP_W-1:0] hop_v6;
        logic [HOP_W-1:0] hop_v4;
        logic             has_v6;
        logic             has_v4;
        logic [5:0]       qfi;
        logic             has_qfi;
        action_t          action;
    } uplink_t;

    // Those of a UE's session: its family, and its address or prefix.
    typedef struct packed {
        logic [6:0]  spare;
        logic        is_v6;
        logic [63:0] address;
    } ue_t;
    typedef struct packed {
        logic [127:0]          peer;        // words 6 to 3; of IPv4 word 3
        logic [15:0]           udp_sum;     // word 2: of what a UDP checksum covers and is the same in all packets
        logic [15:0]           ip_sum;      // of an outer header of IPv4, likewise
        logic [31:0]           teid;        // word 1
        logic [7:0]            spare;       // word 0
        logic [5:0]            dscp;
        logic                  spare_local;
        logic                  local_index; // of the family
        logic [HOP_W-1:0]      hop;
        logic                  has_checksum;
        logic                  has_entropy;
        logic                  is_v6;
        logic [5:0]            qfi;
        logic                  has_qfi;
        action_t               action;
    } downlink_t;

    typedef struct packed {
        logic [31:0] address;
        logic [31:0] mask;
    } route_v4_t;

    typedef struct packed {
        logic [127:0] address;
        logic [127:0] mask;
    } route_v6_t;

    typedef struct packed {
        logic [47:0] dst;
        logic [47:0] src;
    } hop_t;

    // What holds for all packets.
    typedef struct packed {
        logic                     ecn;       // congestion marks go over
        logic [COUNT_W-1:0]       packet_max;
        logic [47:0]              mac;
        logic [LOCALS-1:0]        is_local_v4;
        logic [LOCALS-1:0]        is_local_v6;
        logic [LOCALS-1:0][31:0]  local_v4;
        logic [LOCALS-1:0][127:0] local_v6;
    } settings_t;

    // Which part of a core an address is of, by its page: the registers, or the table (one bit each).
    function automatic logic [1:0] part_of(input logic [3:0] page);
        return page == 4'h8 ? 2'b10 : 2'b01;
    endfunction

    // Whether a destination is an own address that is used, and which: the first of its family that it equals.
    function automatic logic [ENDPOINT_W:0] endpoint_of(
        input logic [LOCALS-1:0] is_local_v4, input logic [LOCALS-1:0] is_local_v6,
        input logic [LOCALS-1:0][31:0] local_v4, input logic [LOCALS-1:0][127:0] local_v6,
        input logic is_v6, input logic [127:0] destination
    );
        endpoint_of = '0;
        for (int at = int'(LOCALS) - 1; at >= 0; at--) begin
            if (!is_v6 && is_local_v4[at] && destination[31:0] == local_v4[at])
                endpoint_of = {1'b1, ENDPOINT_W'(at)};
            if (is_v6 && is_local_v6[at] && destination == local_v6[at])
                endpoint_of = {1'b1, ENDPOINT_W'(int'(LOCALS) + at)};
        end
    endfunction

    // Addresses that no router forwards to: multicast, limited broadcast, loopback, link-local.
    function automatic logic is_not_routed(input logic is_v6, input logic [127:0] address);
        logic [31:0] low;
        low = address[31:0];
        if (is_v6)
            return address[127:120] == 8'hff || address == 128'd1 || address[127:118] == 10'b1111_1110_10;
        return low[31:28] == 4'he || low == '1 || low[31:24] == 8'd127 || low[31:16] == 16'ha9fe;
    endfunction
endpackage

`default_nettype wire
