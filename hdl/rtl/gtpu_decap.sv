// GTP-U decapsulation (TS 29.281, TS 38.415) on an AXI4-Stream of Ethernet frames: a G-PDU of a known session loses its outer headers
// and leaves with the Ethernet addresses of the next hop and one hop less. What is not of this shape goes to the host, unchanged. The
// software twin is the uplink of kaido-upf, with the same reasons for drops.
//
//   s_axis ──▶ axis_window ────────────────────────────▶ shift, change ──▶ m_axis
//                │  outer ▶ chain ▶ inner ▶ walk ▶ decide ──┘   ╰────────▶ host_axis   tuser says why
//                ╰────────▶ gtpu_lookup ────────────▲       axil_split ◀── s_axil
//
// Each part reads the frame while its first beat is in a stage of the window, and leaves what it has read for the next stage. The first
// beat leaves DEPTH clocks after it came in, 12 at 256 bits, and one beat passes each clock. What turns out at the end of a frame
// whose first beat has left, a frame shorter than its IP header says, sets m_axis_tuser with tlast: who takes the frame drops it.
//
// tkeep is contiguous from octet 0 and full but in the last beat. s_axis_tuser with tlast marks a frame with an error.

`default_nettype none

module gtpu_decap
    import net_pkg::*;
    import ip_pkg::*;
    import gtpu_pkg::*;
#(
    parameter int unsigned DATA_W = 256,
    // log2 of the buckets of a way of the table, which has four.
    parameter int unsigned IDX_W = 6,
    localparam int unsigned ID_W = IDX_W + 2
) (
    input  wire logic                clk,
    input  wire logic                rst,

    input  wire logic [DATA_W-1:0]   s_axis_tdata,
    input  wire logic [DATA_W/8-1:0] s_axis_tkeep,
    input  wire logic                s_axis_tlast,
    input  wire logic                s_axis_tuser,
    input  wire logic                s_axis_tvalid,
    output wire logic                s_axis_tready,

    output wire logic [DATA_W-1:0]   m_axis_tdata,
    output wire logic [DATA_W/8-1:0] m_axis_tkeep,
    output wire logic                m_axis_tlast,
    // With tlast: the frame is to be dropped.
    output wire logic                m_axis_tuser,
    output wire logic                m_axis_tvalid,
    input  wire logic                m_axis_tready,

    output wire logic [DATA_W-1:0]   host_axis_tdata,
    output wire logic [DATA_W/8-1:0] host_axis_tkeep,
    output wire logic                host_axis_tlast,
    // The frame had an error (with tlast), and an event_t.
    output wire logic [5:0]          host_axis_tuser,
    output wire logic                host_axis_tvalid,
    input  wire logic                host_axis_tready,

    // What became of each frame, in their order, when its last beat has gone; of what was forwarded, the entry of its session and the
    // octets of the packet that was in the tunnel.
    output wire logic                event_valid,
    output wire event_t              event_code,
    output wire logic [ID_W-1:0]     event_entry,
    output wire logic [COUNT_W-1:0]  event_octets,

    // What holds for all packets, for who steers frames to this core.
    output wire settings_t           settings,

    input  wire logic [11:0]         s_axil_awaddr,
    input  wire logic                s_axil_awvalid,
    output wire logic                s_axil_awready,
    input  wire logic [31:0]         s_axil_wdata,
    input  wire logic [3:0]          s_axil_wstrb,
    input  wire logic                s_axil_wvalid,
    output wire logic                s_axil_wready,
    output wire logic [1:0]          s_axil_bresp,
    output wire logic                s_axil_bvalid,
    input  wire logic                s_axil_bready,
    input  wire logic [11:0]         s_axil_araddr,
    input  wire logic                s_axil_arvalid,
    output wire logic                s_axil_arready,
    output wire logic [31:0]         s_axil_rdata,
    output wire logic [1:0]          s_axil_rresp,
    output wire logic                s_axil_rvalid,
    input  wire logic                s_axil_rready
);
    localparam int unsigned OCTETS = DATA_W / 8;
    // Beats that hold the outer headers: Ethernet, ten words of IP, UDP, GTP-U with its optional word.
    localparam int unsigned OUTER_BEATS = (14 + 40 + 8 + 12 + OCTETS - 1) / OCTETS;
    // The stage of a frame's first beat in which the outer headers are read, and those of what follows.
    localparam int unsigned OUTER = 9;
    localparam int unsigned DEPTH = OUTER + OUTER_BEATS;
    localparam int unsigned CHAIN_STEPS = 3;
    localparam int unsigned CHAIN = OUTER - 1;
    localparam int unsigned INNER = CHAIN - CHAIN_STEPS;
    localparam int unsigned WALK_STEPS = 3;
    localparam int unsigned WALK = INNER - 1;
    localparam int unsigned DECIDE = WALK - WALK_STEPS;
    // The words in which the packet of the UE can begin.
    localparam int unsigned INNER_MIN = 9;
    localparam int unsigned INNER_MAX = 31;
    localparam int unsigned SHIFTS = INNER_MAX - INNER_MIN + 1;
    localparam int unsigned AHEAD = (2 * OCTETS + 4 * INNER_MAX - 1) / OCTETS;

    initial begin
        assert (DECIDE == 1 && AHEAD <= DEPTH);
    end

    // What has been read of a frame.
    typedef struct packed {
        event_t                because;    // FORWARDED while nothing is against it
        event_t                later;      // what is against it if nothing that is asked before is
        logic                  is_packet;  // it must reach the end of its outer packet
        logic                  looked;     // its session is looked up
        logic [20:0]           sum;        // of an IPv4 header, to be right
        logic                  has_sum;
        logic [31:0]           teid;
        logic [ENDPOINT_W-1:0] endpoint;
        logic [1:0]            marks;      // ECN of the outer header
        logic [COUNT_W-1:0]    packet_end; // of the outer packet in the frame
        logic [AT_W-1:0]       at;         // the word where an extension header of GTP-U begins, or the packet of the UE
        logic                  chained;    // the octet before says which extension header it is
        logic [COUNT_W-1:0]    left;       // octets of GTP-U from there on
        logic                  has_container;
        logic                  has_qfi;
        logic [5:0]            qfi;
        ip_t                   ip;         // the packet of the UE
        logic                  to_route;   // its destination has a route of its own
        logic                  unrouted;   // or none
        walk_t                 walk;
    } state_t;

    wire route_v4_t [ROUTES_V4-1:0] routes_v4;
    wire route_v6_t [ROUTES_V6-1:0] routes_v6;
    wire hop_t                      hop;
    wire logic [HOP_W-1:0]          hop_index;
    wire logic                      running;

    wire logic                          head_valid;
    wire logic                          head_taken;
    wire logic [DEPTH-1:0]              valid;
    wire logic [DEPTH-1:0]              load;
    wire logic [DEPTH-1:0][DATA_W-1:0]  data;
    wire logic [DEPTH-1:0][OCTETS-1:0]  keep;
    wire logic [DEPTH-1:0]              first;
    wire logic [DEPTH-1:0]              last;
    wire logic [DEPTH-1:0]              user;
    wire logic [DEPTH-1:0][COUNT_W-1:0] count;
    wire logic                          window_ready;
    wire logic unused_stages = &{1'b0, keep, load, first};

    assign s_axis_tready = window_ready && running;

    axis_window #(.DATA_W(DATA_W), .DEPTH(DEPTH), .COUNT_W(COUNT_W)) stages (
        .clk, .rst,
        .s_axis_tdata, .s_axis_tkeep, .s_axis_tlast, .s_axis_tuser,
        .s_axis_tvalid(s_axis_tvalid && running),
        .s_axis_tready(window_ready),
        .head_valid, .head_taken, .valid, .load, .data, .keep, .first, .last, .user, .count
    );

    // What is read in a stage goes with the first beat into the next.
    state_t [OUTER:DECIDE+1] read;
    state_t [CHAIN:DECIDE]   state;
    for (genvar at = DECIDE; at <= CHAIN; at++) begin : g_state
        always_ff @(posedge clk) begin
            if (load[at] && first[at+1]) state[at] <= read[at+1];
        end
    end

    // Ethernet, IP, UDP, GTP-U.
    localparam int unsigned OUTER_OCTETS = OUTER_BEATS * OCTETS;
    wire logic [OUTER_OCTETS-1:0][7:0] front = data[DEPTH-1:OUTER];
    wire logic [14:0][31:0] words;
    axis_words #(.OCTETS(OUTER_OCTETS), .WORDS(15)) outer_words (.octets(front), .words);
    wire logic outer_whole;
    wire logic outer_error;
    wire logic [COUNT_W-1:0] outer_length;
    axis_frame_end #(.DEPTH(OUTER_BEATS), .COUNT_W(COUNT_W)) outer_end (
        .valid(valid[DEPTH-1:OUTER]), .last(last[DEPTH-1:OUTER]), .user(user[DEPTH-1:OUTER]),
        .count(count[DEPTH-1:OUTER]), .is_known(outer_whole), .has_error(outer_error), .length(outer_length)
    );
    wire logic unused_error = &{1'b0, outer_error};

    wire logic [47:0] frame_dst = {front[0], front[1], front[2], front[3], front[4], front[5]};
    wire logic [15:0] ethertype = {front[12], front[13]};
    wire logic typed_v6 = ethertype == TYPE_IPV6;
    wire logic is_ip = ethertype == TYPE_IPV4 || typed_v6;
    wire ip_t outer = ip_read(words[IP_WORDS-1:0], '1);
    wire logic outer_short = outer_whole && outer_length < (outer.is_v6 ? COUNT_W'(54) : COUNT_W'(34));
    wire logic [COUNT_W-1:0] outer_payload = outer.total - COUNT_W'({outer.words, 2'b00});

    wire logic [AT_W-1:0] udp_at = AT_W'(outer.words);
    wire logic [31:0] udp_ports = words[udp_at];
    wire logic [31:0] udp_length = words[udp_at+AT_W'(1)];
    wire logic [31:0] gtpu = words[udp_at+AT_W'(2)];
    wire logic unused_outer = &{1'b0, udp_ports[31:16], udp_length[15:0], gtpu[27], outer};
    wire logic [COUNT_W-1:0] udp_len = COUNT_W'(udp_length[31:16]);
    wire logic [COUNT_W-1:0] gtpu_len = COUNT_W'(gtpu[15:0]);
    wire logic has_optional = gtpu[26:24] != 3'd0;

    wire logic                  is_local;
    wire logic [ENDPOINT_W-1:0] endpoint;
    assign {is_local, endpoint} = endpoint_of(settings.is_local_v4, settings.is_local_v6, settings.local_v4,
        settings.local_v6, outer.is_v6, outer.destination);

    always_comb begin
        read[OUTER] = '0;
        read[OUTER].because = also(FORWARDED, !is_ip || frame_dst != settings.mac ||
            (outer_whole && outer_length < COUNT_W'(14)), HOST_OTHER);
        read[OUTER].because = also(read[OUTER].because, outer_short || outer.malformed, IP_MALFORMED);
        read[OUTER].because = also(read[OUTER].because, outer.deep, HOST_DEEP);
        read[OUTER].is_packet = read[OUTER].because == FORWARDED || read[OUTER].because == HOST_DEEP;
        // Behind the checksum.
        read[OUTER].later = also(FORWARDED, typed_v6 != outer.is_v6, IP_MALFORMED);
        read[OUTER].later = also(read[OUTER].later, outer.is_v6 && is_extension(outer.protocol), HOST_EXTENSION);
        read[OUTER].later = also(read[OUTER].later, outer.protocol != UDP || !is_local, HOST_OTHER);
        read[OUTER].later = also(read[OUTER].later, outer.is_part, HOST_FRAGMENT);
        read[OUTER].later = also(read[OUTER].later,
            outer_payload < COUNT_W'(8) || udp_len < COUNT_W'(8) || udp_len > outer_payload, UDP_MALFORMED);
        read[OUTER].later = also(read[OUTER].later, udp_ports[15:0] != 16'd2152, HOST_OTHER);
        // Version 1 of GTP, not GTP'.
        read[OUTER].later = also(read[OUTER].later, udp_len < COUNT_W'(16) || gtpu[31:28] != 4'h3 ||
            gtpu_len + COUNT_W'(16) > udp_len || (has_optional && gtpu_len < COUNT_W'(4)), GTPU_MALFORMED);
        read[OUTER].later = also(read[OUTER].later, gtpu[23:16] != 8'd255, HOST_SIGNALLING);
        read[OUTER].sum = outer.sum;
        read[OUTER].has_sum = !outer.is_v6;
        read[OUTER].teid = words[udp_at+AT_W'(3)];
        read[OUTER].endpoint = endpoint;
        read[OUTER].marks = outer.tos[1:0];
        read[OUTER].packet_end = COUNT_W'(14) + outer.total;
        read[OUTER].at = udp_at + (has_optional ? AT_W'(5) : AT_W'(4));
        read[OUTER].chained = gtpu[26];
        read[OUTER].left = gtpu_len - (has_optional ? COUNT_W'(4) : COUNT_W'(0));
    end

    // The lookup: once, when the frame's first beat has come into its stage.
    logic came;
    always_ff @(posedge clk) begin
        came <= load[CHAIN] && first[OUTER] && !rst;
    end
    // What was read in the stage before, with the sum of the header.
    event_t outer_because;
    always_comb begin
        outer_because = also(state[CHAIN].because, state[CHAIN].has_sum && !is_right(state[CHAIN].sum), IP_CHECKSUM);
        outer_because = outer_because == FORWARDED ? state[CHAIN].later : outer_because;
    end
    wire logic looks_up = outer_because == FORWARDED;
    wire tunnel_t key = '{spare: '0, endpoint: state[CHAIN].endpoint, teid: state[CHAIN].teid};
    wire logic [ID_W-1:0] entry;
    wire uplink_t         session;
    wire logic            hit;
    wire logic            decided = load[0] && first[DECIDE];

    // GTP-U's extension headers: one a step. Each says with its last octet which one follows.
    for (genvar at = CHAIN; at > INNER; at--) begin : g_chain
        // The first can begin in few words.
        localparam int unsigned WORDS = at == CHAIN ? 16 : INNER_MAX + 1;
        localparam int unsigned SEEN = (DEPTH - at) * OCTETS;
        wire logic [SEEN-1:0][7:0] seen = data[DEPTH-1:at];
        wire logic [WORDS-1:0][31:0] here;
        axis_words #(.OCTETS(SEEN), .WORDS(WORDS)) chain_words (.octets(seen), .words(here));
        wire logic [AT_W-1:0] index = state[at].at;
        wire logic [31:0] previous = here[index-AT_W'(1)];
        wire logic [31:0] word = here[index];
        wire logic [7:0] kind = previous[7:0];
        wire logic [7:0] len = word[31:24];
        wire logic unused_chain = &{1'b0, previous[31:8], word[19:14], word[7:0]};
        wire logic goes_on = state[at].chained && kind != 8'd0;
        wire logic is_container = kind == 8'h85;
        wire logic wrong = state[at].left < COUNT_W'(4) || len == 8'd0 || state[at].left < COUNT_W'({len, 2'b00});
        always_comb begin
            read[at] = state[at];
            if (at == CHAIN) begin
                read[at].because = outer_because;
                read[at].later = FORWARDED;
                read[at].looked = looks_up;
                read[at].has_sum = 1'b0;
            end
            if (goes_on) begin
                read[at].because = also(read[at].because, wrong, GTPU_MALFORMED);
                read[at].because = also(read[at].because, 10'(state[at].at) + 10'(len) > 10'(INNER_MAX), HOST_DEEP);
                // Its upper bits ask the endpoint to understand it (TS 29.281 5.2.1).
                read[at].because = also(read[at].because, kind[7] && !is_container, HOST_SIGNALLING);
                read[at].at = state[at].at + AT_W'(len);
                read[at].left = state[at].left - COUNT_W'({len, 2'b00});
                // The first container tells the QFI (TS 38.415 5.5.3.3), if it is of downlink or uplink.
                if (is_container && !state[at].has_container) begin
                    read[at].has_container = 1'b1;
                    read[at].has_qfi = word[23:20] <= 4'd1;
                    read[at].qfi = word[13:8];
                end
            end else begin
                read[at].chained = 1'b0;
            end
        end
    end

    // The packet of the UE.
    localparam int unsigned INNER_SEEN = (DEPTH - INNER) * OCTETS;
    wire logic [INNER_SEEN-1:0][7:0] inner_seen = data[DEPTH-1:INNER];
    wire logic [INNER_MAX+IP_WORDS:0][31:0] inner_here;
    axis_words #(.OCTETS(INNER_SEEN), .WORDS(INNER_MAX + IP_WORDS + 1)) inner_from (
        .octets(inner_seen), .words(inner_here)
    );
    wire logic [AT_W-1:0] inner_at = state[INNER].at;
    wire logic [31:0] inner_before = inner_here[inner_at-AT_W'(1)];
    wire logic unused_before = &{1'b0, inner_before[31:8]};
    wire logic [IP_WORDS-1:0][31:0] inner_words;
    for (genvar word = 0; word < IP_WORDS; word++) begin : g_inner_word
        assign inner_words[word] = inner_here[inner_at+AT_W'(word)];
    end
    wire ip_t inner = ip_read(inner_words, state[INNER].left);
    always_comb begin
        read[INNER] = state[INNER];
        read[INNER].because = also(read[INNER].because, state[INNER].chained && inner_before[7:0] != 8'd0, HOST_CHAIN);
        read[INNER].later = also(FORWARDED, inner.malformed, INNER_MALFORMED);
        read[INNER].later = also(read[INNER].later, inner.deep, HOST_DEEP);
        read[INNER].sum = inner.sum;
        read[INNER].has_sum = !inner.is_v6;
        read[INNER].ip = inner;
        read[INNER].walk = walk_start(
            inner.is_v6, inner.protocol, inner.is_part, inner_at + AT_W'(inner.words),
            inner.total - COUNT_W'({inner.words, 2'b00})
        );
    end

    // Its extension headers: one a step; and what can be said of its addresses.
    logic to_route;
    always_comb begin
        to_route = 1'b0;
        for (int unsigned at = 0; at < ROUTES_V4; at++) begin
            to_route |= !state[WALK].ip.is_v6 &&
                (state[WALK].ip.destination[31:0] & routes_v4[at].mask) == routes_v4[at].address;
        end
        for (int unsigned at = 0; at < ROUTES_V6; at++) begin
            to_route |= state[WALK].ip.is_v6 && (state[WALK].ip.destination & routes_v6[at].mask) == routes_v6[at].address;
        end
    end
    for (genvar at = WALK; at > DECIDE; at--) begin : g_walk
        localparam int unsigned SEEN = (DEPTH - at) * OCTETS;
        wire logic [SEEN-1:0][7:0] seen = data[DEPTH-1:at];
        wire logic [WALK_MAX:0][31:0] here;
        axis_words #(.OCTETS(SEEN), .WORDS(WALK_MAX + 1)) walk_words (.octets(seen), .words(here));
        wire logic [31:0] word = here[state[at].walk.at];
        wire logic unused_place = &{1'b0, word[2:1]};
        always_comb begin
            read[at] = state[at];
            if (at == WALK) begin
                read[at].later = also(state[at].later, state[at].has_sum && !is_right(state[at].sum), INNER_MALFORMED);
                read[at].to_route = to_route;
                read[at].unrouted = is_not_routed(state[at].ip.is_v6, state[at].ip.destination) ||
                    is_not_routed(state[at].ip.is_v6, state[at].ip.source);
            end
            read[at].walk = walk_step(state[at].walk, word[31:24], word[23:16], {word[15:3], word[0]});
        end
    end

    // Deciding: once, when the first beat comes into stage 0. It holds for all beats of the frame.
    wire state_t at_end = state[DECIDE];
    wire ip_t    ue = at_end.ip;
    wire logic unused_end = &{1'b0, at_end, ue, session};
    wire logic [7:0] tos_new = {ue.tos[7:2], settings.ecn ? marks_of(ue.tos[1:0], at_end.marks) : ue.tos[1:0]};
    wire logic is_own = ue.is_v6 ? session.has_v6 && ue.source[127:64] == session.prefix :
        session.has_v4 && ue.source[31:0] == session.address;
    // What is read of a frame that is cut off means nothing.
    wire logic               seen_known;
    wire logic               seen_error;
    wire logic [COUNT_W-1:0] seen_length;
    axis_frame_end #(.DEPTH(DEPTH - DECIDE), .COUNT_W(COUNT_W)) seen_end (
        .valid(valid[DEPTH-1:DECIDE]), .last(last[DEPTH-1:DECIDE]), .user(user[DEPTH-1:DECIDE]),
        .count(count[DEPTH-1:DECIDE]), .is_known(seen_known), .has_error(seen_error), .length(seen_length)
    );
    wire logic unused_seen = &{1'b0, seen_error};
    event_t because;
    always_comb begin
        because = at_end.because;
        if (at_end.is_packet && seen_known && seen_length < at_end.packet_end) because = IP_MALFORMED;
        because = also(because, !hit, HOST_MISS);
        because = also(because, session.action == ACTION_HOST, HOST_SESSION);
        because = because == FORWARDED ? at_end.later : because;
        because = also(because, at_end.walk.malformed, INNER_MALFORMED);
        because = also(because, at_end.walk.walking || at_end.walk.deep, HOST_EXTENSION);
        because = also(because, settings.ecn && is_unmarkable(ue.tos[1:0], at_end.marks), CONGESTION_MARK);
        because = also(because, session.has_qfi && !(at_end.has_qfi && at_end.qfi == session.qfi), NO_PDR);
        because = also(because, !is_own, UE_SPOOFED);
        because = also(because, at_end.unrouted, NOT_ROUTED);
        because = also(because, at_end.to_route, HOST_ROUTE);
        because = also(because, ue.hops <= 8'd1, HOST_TTL);
        because = also(because, session.action == ACTION_DROP, FAR_DROP);
        because = also(because, session.action == ACTION_CLOSED, GATE_CLOSED);
        because = also(because, ue.total > settings.packet_max, HOST_MTU);
    end
    assign hop_index = ue.is_v6 ? session.hop_v6 : session.hop_v4;

    event_t             decision;
    logic               is_tunnel;  // the frame must reach the end of the outer packet
    logic [COUNT_W-1:0] packet_end;
    logic               is_v6;
    logic [7:0]         tos;
    logic [7:0]         hops;
    logic [15:0]        checksum;
    logic [ID_W-1:0]    entry_used;
    logic [COUNT_W-1:0] octets_used;
    hop_t               link;
    logic [SHIFTS-1:0]  shifts;     // which of them it is, one bit each
    always_ff @(posedge clk) begin
        if (decided) begin
            decision    <= because;
            is_tunnel   <= !is_host(because);
            packet_end  <= at_end.packet_end;
            is_v6       <= ue.is_v6;
            tos         <= tos_new;
            hops        <= ue.hops - 8'd1;
            checksum    <= checksum_after(ue.checksum, ue.tos, tos_new);
            entry_used  <= entry;
            octets_used <= ue.total;
            link        <= hop;
            for (int unsigned at = 0; at < SHIFTS; at++) shifts[at] <= at_end.at == AT_W'(at + INNER_MIN);
        end
    end

    // The frame in stage 0.
    logic               finished; // all of a packet has left
    logic [COUNT_W-1:0] left;     // octets of it that have not

    wire logic               end_error;
    wire logic               end_known;
    wire logic [COUNT_W-1:0] end_length;
    axis_frame_end #(.DEPTH(DEPTH), .COUNT_W(COUNT_W)) head_end (
        .valid, .last, .user, .count, .is_known(end_known), .has_error(end_error), .length(end_length)
    );

    wire logic forwards = decision == FORWARDED;
    wire logic hosts = is_host(decision);
    wire logic cut_short = is_tunnel && end_known && end_length < packet_end;
    wire logic ends_out = left <= COUNT_W'(OCTETS) || last[0];

    assign m_axis_tvalid = head_valid && forwards && !finished;
    assign host_axis_tvalid = head_valid && hosts;
    assign head_taken = head_valid && (m_axis_tvalid ? m_axis_tready : host_axis_tvalid ? host_axis_tready : 1'b1);

    always_ff @(posedge clk) begin
        if (decided) begin
            finished <= 1'b0;
            left     <= COUNT_W'(14) + ue.total;
        end else if (m_axis_tvalid && m_axis_tready) begin
            finished <= ends_out;
            left     <= left - COUNT_W'(OCTETS);
        end
    end

    // A beat that waits does not change when the end of the frame comes in behind it.
    logic waits;
    logic waiting_user;
    wire logic is_marked = ends_out && ((end_known && end_error) || cut_short);
    always_ff @(posedge clk) begin
        waits        <= m_axis_tvalid && !m_axis_tready && !rst;
        waiting_user <= m_axis_tuser;
    end

    // Octets from the beat in stage 0 on. Behind its last beat stand those of another frame: of them no octet leaves.
    wire logic [AHEAD*OCTETS-1:0][7:0] ahead;
    for (genvar beat = 0; beat < AHEAD; beat++) begin : g_ahead
        if (beat == 0) begin : g_head
            assign ahead[0+:OCTETS] = data[0];
        end else begin : g_behind
            assign ahead[OCTETS*beat+:OCTETS] = last[beat-1:0] == '0 ? data[beat] : '0;
        end
    end
    // The Ethernet header is 14 octets again: the packet comes forward by the words before it.
    logic [OCTETS-1:0][7:0] shifted;
    always_comb begin
        for (int unsigned at = 0; at < OCTETS; at++) begin
            shifted[at] = 8'd0;
            for (int unsigned shift = 0; shift < SHIFTS; shift++) begin
                if (shifts[shift]) shifted[at] |= ahead[at+4*(shift+INNER_MIN)];
            end
        end
    end

    wire logic [111:0] ethernet = {link.dst, link.src, is_v6 ? TYPE_IPV6 : TYPE_IPV4};
    logic [OCTETS-1:0][7:0] changed;
    always_comb begin
        changed = shifted;
        if (first[0]) begin
            for (int unsigned at = 0; at < 14; at++) changed[at] = ethernet[8*(13-at)+:8];
            if (is_v6) begin
                changed[14][3:0] = tos[7:4];
                changed[15][7:4] = tos[3:0];
                changed[21] = hops;
            end else begin
                changed[15] = tos;
                changed[22] = hops;
                {changed[24], changed[25]} = checksum;
            end
        end
    end

    logic [OCTETS-1:0] keep_out;
    always_comb begin
        for (int unsigned at = 0; at < OCTETS; at++) keep_out[at] = left > COUNT_W'(at);
    end

    assign m_axis_tdata = changed;
    assign m_axis_tkeep = keep_out;
    assign m_axis_tlast = ends_out;
    assign m_axis_tuser = waits ? waiting_user : is_marked;

    assign host_axis_tdata = data[0];
    assign host_axis_tkeep = keep[0];
    assign host_axis_tlast = last[0];
    assign host_axis_tuser = {last[0] && user[0], decision};

    assign event_valid = head_taken && last[0];
    assign event_code = hosts ? decision : user[0] ? FRAME_ERROR : cut_short ? IP_MALFORMED : decision;
    assign event_entry = entry_used;
    assign event_octets = octets_used;

    // Registers, and the table behind them.
    wire logic [1:0]       bus_wvalid;
    wire logic [1:0]       bus_wready;
    wire logic [1:0][1:0]  bus_bresp;
    wire logic [1:0]       bus_bvalid;
    wire logic             bus_bready;
    wire logic [1:0]       bus_arvalid;
    wire logic [1:0]       bus_arready;
    wire logic [1:0][31:0] bus_rdata;
    wire logic [1:0][1:0]  bus_rresp;
    wire logic [1:0]       bus_rvalid;
    wire logic             bus_rready;
    wire logic             regs_awready;
    wire logic unused_awready = &{1'b0, regs_awready};
    axil_split split (
        .clk, .rst,
        .s_awvalid(s_axil_awvalid), .s_awready(s_axil_awready),
        .s_wvalid(s_axil_wvalid), .s_wready(s_axil_wready),
        .s_bresp(s_axil_bresp), .s_bvalid(s_axil_bvalid), .s_bready(s_axil_bready),
        .s_arvalid(s_axil_arvalid), .s_arready(s_axil_arready),
        .s_rdata(s_axil_rdata), .s_rresp(s_axil_rresp), .s_rvalid(s_axil_rvalid), .s_rready(s_axil_rready),
        .write_to(part_of(s_axil_awaddr[11:8])), .read_to(part_of(s_axil_araddr[11:8])),
        .m_wvalid(bus_wvalid), .m_wready(bus_wready), .m_bresp(bus_bresp), .m_bvalid(bus_bvalid), .m_bready(bus_bready),
        .m_arvalid(bus_arvalid), .m_arready(bus_arready), .m_rdata(bus_rdata), .m_rresp(bus_rresp),
        .m_rvalid(bus_rvalid), .m_rready(bus_rready)
    );
    gtpu_regs #(.DATA_W(DATA_W), .IDENTIFIER(32'h4754_4431), .HAS_ROUTES(1'b1)) regs (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid(bus_wvalid[0]), .s_axil_awready(regs_awready),
        .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid(bus_wvalid[0]), .s_axil_wready(bus_wready[0]),
        .s_axil_bresp(bus_bresp[0]), .s_axil_bvalid(bus_bvalid[0]), .s_axil_bready(bus_bready),
        .s_axil_araddr, .s_axil_arvalid(bus_arvalid[0]), .s_axil_arready(bus_arready[0]),
        .s_axil_rdata(bus_rdata[0]), .s_axil_rresp(bus_rresp[0]), .s_axil_rvalid(bus_rvalid[0]), .s_axil_rready(bus_rready),
        .settings, .routes_v4, .routes_v6, .hop_index, .hop, .ready(running), .event_valid, .event_code
    );
    gtpu_lookup #(.KEY_W($bits(tunnel_t)), .VAL_W($bits(uplink_t)), .IDX_W(IDX_W)) lookup (
        .clk, .rst,
        .asks(came && looks_up), .key(key), .octets(state[CHAIN].left[15:0]),
        .hit, .entry, .value(session), .taken(decided && at_end.looked),
        .awaddr(s_axil_awaddr[7:0]), .wdata(s_axil_wdata), .wstrb(s_axil_wstrb),
        .wvalid(bus_wvalid[1]), .wready(bus_wready[1]),
        .bresp(bus_bresp[1]), .bvalid(bus_bvalid[1]), .bready(bus_bready),
        .araddr(s_axil_araddr[7:0]), .arvalid(bus_arvalid[1]), .arready(bus_arready[1]),
        .rdata(bus_rdata[1]), .rresp(bus_rresp[1]), .rvalid(bus_rvalid[1]), .rready(bus_rready)
    );
endmodule

`default_nettype wire
