// What the parts of the GRE header remover tell each other. The codes are those of the register map, hdl/regs.toml.

`default_nettype none

package gre_pkg;
    import net_pkg::COUNT_W;

    // What became of a packet: index of its counter. The names of drops are those of kaido-gre.
    typedef enum logic [4:0] {
        PASSED          = 5'd0,
        STRIPPED        = 5'd1,
        IP_MALFORMED    = 5'd2,
        IP_CHECKSUM     = 5'd3,
        GRE_MALFORMED   = 5'd4,
        GRE_VERSION     = 5'd5,
        GRE_FLAGS       = 5'd6,
        GRE_RULE        = 5'd7,
        INNER_MALFORMED = 5'd8,
        CONGESTION_MARK = 5'd9,
        TOO_BIG         = 5'd10,
        OUTER_FRAGMENT  = 5'd11,
        // tuser of s_axis was set: the MAC saw a wrong frame check sequence. Software never sees such a frame.
        FRAME_ERROR     = 5'd12,
        GRE_CHECKSUM    = 5'd13,
        // By route, and from or to an address that no router forwards.
        NOT_ROUTED      = 5'd14,
        // Left to the host, unchanged.
        HOST_TAGS       = 5'd16, // three or four VLAN tags
        HOST_EXTENSION  = 5'd17, // IPv6 extension headers that may end in GRE
        HOST_DEEP       = 5'd18, // headers that end behind the window
        HOST_FRAGMENT   = 5'd19, // a fragment of a tunnel packet
        HOST_ROUTE      = 5'd21, // the rule forwards by route
        HOST_PUNT       = 5'd22, // the rule, or the policy for what no rule is for or nobody can read, says host
        HOST_OTHER      = 5'd23  // no tunnel packet, and the host may have a tunnel for it
    } event_t;

    typedef enum logic [1:0] {
        VERDICT_PASS  = 2'd0,
        VERDICT_DROP  = 2'd1,
        VERDICT_STRIP = 2'd2,
        VERDICT_HOST  = 2'd3
    } verdict_t;

    // What a rule does.
    typedef struct packed {
        logic     route;
        logic     dscp_uniform;
        logic     ttl_uniform;
        verdict_t verdict;
    } action_t;

    typedef enum logic [1:0] {
        KEY_ANY    = 2'd0,
        KEY_ABSENT = 2'd1,
        KEY_IS     = 2'd2
    } key_match_t;

    // What both families' rules have: as the register, bit 0 last.
    typedef struct packed {
        action_t    action;   // [10:6]
        logic       ethernet; // [5]
        logic       ipv6;     // [4]
        logic       ipv4;     // [3]
        key_match_t key;      // [2:1]
        logic       valid;    // [0]
    } condition_t;

    typedef struct packed {
        logic [31:0] source;
        logic [31:0] source_mask;
        logic [31:0] destination;
        logic [31:0] destination_mask;
        logic [31:0] key;
        condition_t  condition;
    } rule_v4_t;

    typedef struct packed {
        logic [127:0] source;
        logic [127:0] source_mask;
        logic [127:0] destination;
        logic [127:0] destination_mask;
        logic [31:0]  key;
        condition_t   condition;
    } rule_v6_t;

    // What holds for all packets.
    typedef struct packed {
        logic [COUNT_W-1:0] length_max; // of a frame that leaves, in octets
        logic               other_host; // what is no tunnel packet goes to the host
        verdict_t           fragment;   // pass, drop or host
        verdict_t           unreadable; // pass, drop or host
        action_t            unmatched;
    } policy_t;

    // Words of four octets behind an Ethernet header without tags that can matter: two tags, IPv4 with all options, GRE.
    localparam int unsigned SUM_WORDS = 17;
    // Sums in parts: each third word.
    localparam int unsigned SUM_PARTS = 3;

    // Where things are in a frame: what must be known of its first octets before the others are read.
    typedef struct packed {
        logic [1:0] tags;
        logic       many_tags; // three or four
        logic       type_v4;
        logic       type_v6;
        logic       is_six;    // the version is 6, if it is 4 or 6
        logic [3:0] ip_words;  // words of the IP header
        logic [4:0] gre_at;    // words from an Ethernet header without tags to GRE
    } layout_t;

    // What gre_parse reads of a frame, however long it is.
    typedef struct packed {
        layout_t            layout;
        logic               is_v4;
        logic               is_v6;
        logic               next_gre;    // the next header is GRE
        logic               extended;    // IPv6 extension headers may end in GRE
        logic               no_payload;  // the length is less than that of the header, or 0 in IPv6
        logic               fragment;
        logic [7:0]         tos;
        logic [7:0]         hops;
        logic [7:0][31:0]   words;       // 2 to 9 of the IP header, in their order: addresses
        logic [COUNT_W-1:0] packet_end;  // where the IP packet ends in the frame
        logic [6:0]         payload;     // octets behind the IP header, at most 127
        logic [31:0]        gre;         // flags and protocol
        logic [2:0]         gre_words;   // words of the GRE header
        logic [4:0]         outer_words; // words of IP and GRE headers
        logic               ethernet;    // an Ethernet frame is in the tunnel
        logic [SUM_PARTS-1:0][19:0] sums; // of the IPv4 header, in parts
    } fields_t;

    // The packet in the tunnel, as gre_shift finds it behind the outer headers.
    typedef struct packed {
        // 2 to 4 of the words behind an Ethernet header without tags; 0, or 5 if there are tags; 1, or 6 if there are two. Of an
        // IPv4 header without options these are all words.
        logic [4:0][31:0] words;
        logic [31:0]      key;
    } inner_t;

    // What gre_match finds out without the packet in the tunnel.
    typedef struct packed {
        logic               many_tags;
        logic               extension;
        logic               tunnel;      // claims to be a tunnel packet
        logic               broken;      // the IP header, or the frame ends before it says
        logic               deep;        // the window ends before GRE
        logic               is_v4;
        logic               is_v6;
        logic [20:0]        sum;         // of the IPv4 header, with its carries
        logic               fragment;
        logic               unreadable;
        event_t             unreadable_event;
        logic               has_sum;
        logic               has_key;
        logic               too_deep;    // the window ends before the packet in the tunnel
        logic               in_v4;
        logic               in_v6;
        logic               in_ethernet;
        logic               no_inner;    // less than a header is in the tunnel
        logic               too_big;
        logic [7:0]         tos;
        logic [7:0]         hops;
        logic [1:0]         tags;
        logic [COUNT_W-1:0] packet_end;
        logic [COUNT_W-1:0] out_len;
        logic [COUNT_W-1:0] room;        // octets in the tunnel
    } outer_t;

    // What a router looks at before it asks where a packet of IPv4 goes.
    typedef struct packed {
        logic        has_options;  // its header is longer than what is read here
        logic        wrong_length; // shorter than its header, or longer than what is in the tunnel
        logic [18:0] sum;          // of all words of the header but the last that is read, with its carries
        logic [16:0] sum_last;     // of that
        logic        not_routed;   // from or to a group, this host, this link or nobody
    } routing_t;

    // What gre_inner adds to that, without the rule that is met.
    typedef struct packed {
        outer_t      outer;
        logic        wrong_inner;
        logic [7:0]  inner_tos;
        logic [7:0]  inner_hops;
        logic [15:0] inner_sum;   // the checksum of IPv4 in the tunnel
        routing_t    routing;
    } facts_t;

    // What changes in the packet that was in the tunnel.
    typedef enum logic [1:0] {
        CHANGE_NONE = 2'd0,
        CHANGE_V4   = 2'd1,
        CHANGE_V6   = 2'd2
    } change_t;

    // What becomes of a frame, and what is counted if nothing else turns out by its end.
    typedef struct packed {
        verdict_t verdict;
        event_t   because;
        logic     has_sum; // of GRE: it must be right
        logic     matched; // a rule counts it
    } outcome_t;

    // What gre_decide makes of it.
    typedef struct packed {
        outcome_t           outcome;     // if the checksums of headers that matter are right
        // The checksum of the outer IPv4 header matters, and its sum.
        logic               checks_sum;
        logic [20:0]        sum;
        // The packet goes by route, which the host does, if its header is right, which matters if the core can say it.
        logic               routes;
        logic               judges_route;
        logic               rule_met;
        routing_t           routing;
        logic               tunnel;      // the frame must reach packet_end
        logic [COUNT_W-1:0] packet_end;
        logic [COUNT_W-1:0] out_len;     // of what is stripped
        logic [1:0]         tags;
        logic               ethernet;    // an Ethernet frame was in the tunnel
        change_t            change;
        logic [7:0]         tos;         // new, of the inner packet
        logic [15:0]        tos_delta;   // what the inner checksum gains by it (RFC 1624)
        logic [7:0]         hops;        // the new hop count, and the same of it
        logic [15:0]        hops_delta;
        logic [15:0]        inner_sum;
        logic [5:0]         rule;
    } decision_t;

    localparam logic [15:0] TYPE_ETHERNET = 16'h6558;
    localparam logic [7:0]  PROTOCOL_GRE = 8'd47;
endpackage

`default_nettype wire
