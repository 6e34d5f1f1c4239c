// GTP-U encapsulation (TS 29.281, TS 38.415) on an AXI4-Stream of Ethernet frames: an IP packet to a UE of a known session loses a hop,
// gets outer headers before it and leaves with the Ethernet addresses of the next hop. What is not of this shape goes to the host,
// unchanged. The software twin is the downlink of kaido-upf, with the same reasons for drops.
//
//   s_axis ──▶ axis_window ───────────────────────▶ change, shift, headers ──▶ m_axis
//                │  read ▶ walk ▶ flow ▶ decide ▶ headers ──┘   ╰─────────────▶ host_axis   tuser says why
//                ╰────────▶ gtpu_lookup ──▲        axil_split ◀── s_axil
//
// Each part reads the frame while its first beat is in a stage of the window, and leaves what it has read for the next stage. The first
// beat leaves DEPTH clocks after it came in, 12 at 256 bits, and a beat leaves each clock: the input waits for the beats that a
// packet gets longer by. The UDP checksum is told by the packet's own (RFC 1624): what has none goes to the host, if a checksum is
// asked for.
//
// tkeep is contiguous from octet 0 and full but in the last beat. s_axis_tuser with tlast marks a frame with an error.

`default_nettype none

module gtpu_encap
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
    // octets of the packet that is in the tunnel.
    output wire logic                event_valid,
    output wire event_t              event_code,
    output wire logic [ID_W-1:0]     event_entry,
    output wire logic [COUNT_W-1:0]  event_octets,

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
    // Beats that hold Ethernet and ten words of IP.
    localparam int unsigned READ_BEATS = (14 + 40 + OCTETS - 1) / OCTETS;
    // The stage of a frame's first beat in which the IP header is read, and those of what follows.
    localparam int unsigned READ = 10;
    localparam int unsigned DEPTH = READ + READ_BEATS;
    localparam int unsigned LOOKUP = READ - 1;
    localparam int unsigned WALK_STEPS = 4;
    localparam int unsigned WALK = LOOKUP - 1;
    localparam int unsigned PORTS = WALK - WALK_STEPS;
    localparam int unsigned FLOW = PORTS - 1;
    localparam int unsigned DECIDE = FLOW - 1;
    localparam int unsigned HEADERS = DECIDE - 1;
    // Words of the outer headers: of IPv4 and IPv6, each without and with a PDU session container.
    localparam int unsigned KINDS = 4;
    localparam logic [KINDS-1:0][7:0] OUTER_WORDS = {8'd16, 8'd14, 8'd11, 8'd9};
    localparam int unsigned WORDS_MAX = 16;
    // The longest packet of which the outer lengths can be told.
    localparam logic [COUNT_W-1:0] TOTAL_MAX = COUNT_W'(65535 - 4 * WORDS_MAX);

    initial begin
        assert (HEADERS == 1);
    end

    // What has been read of a frame.
    typedef struct packed {
        event_t            because;   // FORWARDED while nothing is against it
        event_t            later;     // what is against it if the checksum is right
        logic              is_packet; // it must reach the end of its packet
        logic              looked;    // its session is looked up
        ip_t               ip;
        walk_t             walk;
        logic [31:0]       ports;     // the first words of what the packet carries
        logic [31:0]       second;
        logic [13:0]       flow;      // by which its source port is told
        logic              has_sum;   // the sum of the packet can be told
        logic [17:0]       sum;
    } state_t;

    wire settings_t                 settings;
    wire route_v4_t [ROUTES_V4-1:0] routes_v4;
    wire route_v6_t [ROUTES_V6-1:0] routes_v6;
    // Of the own addresses the session names one.
    wire logic unused_settings = &{1'b0, routes_v4, routes_v6, settings};
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
    wire logic unused_stages = &{1'b0, keep, load, first, data};

    assign s_axis_tready = window_ready && running;

    axis_window #(.DATA_W(DATA_W), .DEPTH(DEPTH), .COUNT_W(COUNT_W)) stages (
        .clk, .rst,
        .s_axis_tdata, .s_axis_tkeep, .s_axis_tlast, .s_axis_tuser,
        .s_axis_tvalid(s_axis_tvalid && running),
        .s_axis_tready(window_ready),
        .head_valid, .head_taken, .valid, .load, .data, .keep, .first, .last, .user, .count
    );

    // What is read in a stage goes with the first beat into the next.
    state_t [READ:DECIDE+1]   read;
    state_t [LOOKUP:DECIDE]   state;
    for (genvar at = DECIDE; at <= LOOKUP; at++) begin : g_state
        always_ff @(posedge clk) begin
            if (load[at] && first[at+1]) state[at] <= read[at+1];
        end
    end

    // Ethernet and IP.
    localparam int unsigned READ_OCTETS = READ_BEATS * OCTETS;
    wire logic [READ_OCTETS-1:0][7:0] front = data[DEPTH-1:READ];
    wire logic [IP_WORDS-1:0][31:0] words;
    axis_words #(.OCTETS(READ_OCTETS), .WORDS(IP_WORDS)) read_words (.octets(front), .words);
    wire logic read_whole;
    wire logic read_error;
    wire logic [COUNT_W-1:0] read_length;
    axis_frame_end #(.DEPTH(READ_BEATS), .COUNT_W(COUNT_W)) read_end (
        .valid(valid[DEPTH-1:READ]), .last(last[DEPTH-1:READ]), .user(user[DEPTH-1:READ]),
        .count(count[DEPTH-1:READ]), .is_known(read_whole), .has_error(read_error), .length(read_length)
    );
    wire logic unused_error = &{1'b0, read_error};

    wire logic [47:0] frame_dst = {front[0], front[1], front[2], front[3], front[4], front[5]};
    wire logic [15:0] ethertype = {front[12], front[13]};
    wire logic typed_v6 = ethertype == TYPE_IPV6;
    wire logic is_ip = ethertype == TYPE_IPV4 || typed_v6;
    wire ip_t packet = ip_read(words, '1);
    wire logic is_short = read_whole && read_length < (packet.is_v6 ? COUNT_W'(54) : COUNT_W'(34));
    always_comb begin
        read[READ] = '0;
        read[READ].because = also(FORWARDED, !is_ip || frame_dst != settings.mac ||
            (read_whole && read_length < COUNT_W'(14)), HOST_OTHER);
        read[READ].because = also(read[READ].because, is_short || packet.malformed, IP_MALFORMED);
        read[READ].because = also(read[READ].because, packet.deep, HOST_DEEP);
        read[READ].is_packet = read[READ].because == FORWARDED || read[READ].because == HOST_DEEP;
        read[READ].later = also(FORWARDED, typed_v6 != packet.is_v6, IP_MALFORMED);
        read[READ].ip = packet;
        read[READ].walk = walk_start(
            packet.is_v6, packet.protocol, packet.is_part, AT_W'(packet.words),
            packet.total - COUNT_W'({packet.words, 2'b00})
        );
    end

    // The lookup: once, when the frame's first beat has come into its stage.
    logic came;
    always_ff @(posedge clk) begin
        came <= load[LOOKUP] && first[READ] && !rst;
    end
    wire ip_t found = state[LOOKUP].ip;
    wire logic unused_found = &{1'b0, found};
    event_t found_because;
    always_comb begin
        found_because = also(state[LOOKUP].because, !found.is_v6 && !is_right(found.sum), IP_CHECKSUM);
        found_because = found_because == FORWARDED ? state[LOOKUP].later : found_because;
    end
    wire logic looks_up = found_because == FORWARDED;
    always_comb begin
        read[LOOKUP] = state[LOOKUP];
        read[LOOKUP].because = found_because;
        read[LOOKUP].looked = looks_up;
    end
    wire ue_t key = '{
        spare: '0,
        is_v6: found.is_v6,
        address: found.is_v6 ? found.destination[127:64] : {32'd0, found.destination[31:0]}
    };
    wire logic [ID_W-1:0] entry;
    wire downlink_t       session;
    wire logic            hit;

    // Extension headers of IPv6: one a step, as far as the frame has come in.
    for (genvar at = WALK; at > PORTS; at--) begin : g_walk
        localparam int unsigned SEEN = (DEPTH - at) * OCTETS;
        localparam int unsigned WHOLE = (SEEN - 14) / 4;
        localparam int unsigned LAST = WHOLE - 1 < WALK_MAX ? WHOLE - 1 : WALK_MAX;
        wire logic [SEEN-1:0][7:0] seen = data[DEPTH-1:at];
        wire logic [LAST:0][31:0] here;
        axis_words #(.OCTETS(SEEN), .WORDS(LAST + 1)) walk_words (.octets(seen), .words(here));
        wire logic [31:0] word = here[state[at].walk.at];
        wire logic unused_place = &{1'b0, word[2:1]};
        wire logic not_seen = state[at].walk.walking && state[at].walk.at > AT_W'(LAST);
        always_comb begin
            read[at] = state[at];
            read[at].walk = walk_step(state[at].walk, word[31:24], word[23:16], {word[15:3], word[0]});
            if (not_seen) begin
                read[at].walk = state[at].walk;
                read[at].walk.walking = 1'b0;
                read[at].walk.deep = 1'b1;
            end
        end
    end

    // What the packet carries.
    localparam int unsigned PORTS_SEEN = (DEPTH - PORTS) * OCTETS;
    wire logic [PORTS_SEEN-1:0][7:0] ports_seen = data[DEPTH-1:PORTS];
    wire logic [WALK_MAX+1:0][31:0] ports_here;
    axis_words #(.OCTETS(PORTS_SEEN), .WORDS(WALK_MAX + 2)) ports_words (.octets(ports_seen), .words(ports_here));
    wire walk_t walked = state[PORTS].walk;
    wire logic unused_walked = &{1'b0, walked};
    always_comb begin
        read[PORTS] = state[PORTS];
        read[PORTS].because = also(read[PORTS].because, walked.malformed, IP_MALFORMED);
        read[PORTS].because = also(read[PORTS].because, walked.walking || walked.deep, HOST_EXTENSION);
        read[PORTS].ports = ports_here[walked.at];
        read[PORTS].second = ports_here[walked.at+AT_W'(1)];
    end

    // By what its source port and its sum are told.
    wire ip_t   flow_ip = state[FLOW].ip;
    wire walk_t flow_walk = state[FLOW].walk;
    wire logic unused_flow = &{1'b0, flow_ip, flow_walk};
    wire logic [7:0] protocol = flow_walk.protocol;
    wire logic has_ports = (protocol == TCP || protocol == UDP || protocol == SCTP) && !flow_walk.is_part &&
        flow_walk.left >= COUNT_W'(4);
    // A checksum that covers all that the packet carries, and addresses, length and protocol with it.
    wire logic is_covered = protocol == TCP ||
        (protocol == UDP && flow_walk.left >= COUNT_W'(8) && COUNT_W'(state[FLOW].second[31:16]) == flow_walk.left &&
         state[FLOW].second[15:0] != 16'd0);
    logic [15:0] folded;
    logic [20:0] pseudo;
    always_comb begin
        folded = {8'd0, protocol};
        if (has_ports) folded ^= state[FLOW].ports[31:16] ^ state[FLOW].ports[15:0];
        pseudo = {13'd0, protocol} + {5'd0, flow_walk.left[15:0]};
        for (int unsigned at = 0; at < 8; at++) begin
            folded ^= flow_ip.source[16*at+:16] ^ flow_ip.destination[16*at+:16];
        end
        for (int unsigned at = 0; at < 2; at++) begin
            pseudo = pseudo + 21'(flow_ip.source[16*at+:16]) + 21'(flow_ip.destination[16*at+:16]);
        end
        read[FLOW] = state[FLOW];
        read[FLOW].flow = folded[13:0];
        if (flow_ip.is_v6) begin
            // Addresses and length are in the header and in the pseudo-header; behind extension headers it is not told.
            read[FLOW].has_sum = !flow_walk.begun && (is_covered || protocol == ICMPV6);
            read[FLOW].sum = {2'd0, 4'd6, flow_ip.tos, flow_ip.flow[19:16]} + {2'd0, flow_ip.flow[15:0]} +
                {2'd0, flow_ip.protocol, flow_ip.hops - 8'd1} + {2'd0, 8'hff, ~flow_ip.protocol};
        end else begin
            // The header sums up to nothing; what it carries to the opposite of the pseudo-header, or with ICMP to nothing.
            read[FLOW].has_sum = !flow_ip.is_part && (is_covered || protocol == ICMP);
            read[FLOW].sum = protocol == ICMP ? 18'd0 : {2'd0, ~fold(pseudo)};
        end
    end

    // Deciding, and what of the headers the packet tells.
    wire logic judged = load[HEADERS] && first[DECIDE];
    wire state_t at_end = state[DECIDE];
    wire ip_t    ue = at_end.ip;
    wire logic unused_end = &{1'b0, at_end, ue, session};
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
        if (at_end.is_packet && seen_known && seen_length < COUNT_W'(14) + ue.total) because = IP_MALFORMED;
        because = also(because, !hit, HOST_MISS);
        because = also(because, session.action == ACTION_HOST, HOST_SESSION);
        because = also(because, ue.hops <= 8'd1, HOST_TTL);
        because = also(because, session.action == ACTION_DROP, FAR_DROP);
        because = also(because, session.action == ACTION_CLOSED, GATE_CLOSED);
        because = also(because, ue.total > settings.packet_max || ue.total > TOTAL_MAX, HOST_MTU);
        because = also(because, session.has_checksum && !at_end.has_sum, HOST_CHECKSUM);
    end
    assign hop_index = session.hop;
    wire logic [15:0] gtpu_len = ue.total[15:0] + (session.has_qfi ? 16'd8 : 16'd0);
    wire logic [15:0] udp_len = gtpu_len + 16'd16;
    wire logic [15:0] port = session.has_entropy ? {2'b11, at_end.flow} : 16'd2152;
    wire logic [7:0] outer_tos = {session.dscp, settings.ecn ? ue.tos[1:0] : 2'd0};
    // UDP's length is in its header and in the pseudo-header.
    wire logic [20:0] udp_sum = {5'd0, session.udp_sum} + {3'd0, at_end.sum} + {5'd0, port} + {4'd0, udp_len, 1'b0} +
        {5'd0, gtpu_len};
    wire logic [20:0] ip_sum = {5'd0, session.ip_sum} + {5'd0, udp_len + 16'd20} + {19'd0, outer_tos[1:0]};

    typedef struct packed {
        event_t             because;
        logic               is_v6;        // the packet
        logic [COUNT_W-1:0] total;
        logic [7:0]         hops;
        logic [15:0]        checksum;
        logic [ID_W-1:0]    entry;
        hop_t               link;
        logic               outer_v6;
        logic               has_container;
        logic [5:0]         qfi;
        logic [7:0]         tos;
        logic [127:0]       source;
        logic [127:0]       destination;
        logic [15:0]        port;
        logic [15:0]        udp_len;
        logic [15:0]        gtpu_len;
        logic [31:0]        teid;
        logic               has_checksum;
        logic [20:0]        udp_sum;
        logic [20:0]        ip_sum;
    } verdict_t;
    verdict_t verdict;
    always_ff @(posedge clk) begin
        if (judged) begin
            verdict <= '{
                because: because,
                is_v6: ue.is_v6,
                total: ue.total,
                hops: ue.hops - 8'd1,
                checksum: checksum_after(ue.checksum, ue.tos, ue.tos),
                entry: entry,
                link: hop,
                outer_v6: session.is_v6,
                has_container: session.has_qfi,
                qfi: session.qfi,
                tos: outer_tos,
                source: session.is_v6 ? settings.local_v6[session.local_index] :
                    {96'd0, settings.local_v4[session.local_index]},
                destination: session.peer,
                port: port,
                udp_len: udp_len,
                gtpu_len: gtpu_len,
                teid: session.teid,
                has_checksum: session.has_checksum,
                udp_sum: udp_sum,
                ip_sum: ip_sum
            };
        end
    end

    // The outer headers: made once, when the first beat comes into stage 0. They hold for all beats of the frame.
    wire logic decided = load[0] && first[HEADERS];
    // Zero is no checksum: it is sent as 0xffff (RFC 768).
    wire logic [15:0] udp_told = ~fold(verdict.udp_sum);
    wire logic [15:0] udp_checksum = !verdict.has_checksum ? 16'd0 : udp_told == 16'd0 ? 16'hffff : udp_told;
    wire logic [5:0][31:0] datagram = {
        {8'h01, 8'h00, 2'd0, verdict.qfi, 8'h00},
        32'h0000_0085,
        verdict.teid,
        {5'b0011_0, verdict.has_container, 2'b00, 8'd255, verdict.gtpu_len},
        {verdict.udp_len, udp_checksum},
        {verdict.port, 16'd2152}
    };
    logic [WORDS_MAX-1:0][31:0] made;
    always_comb begin
        made = '0;
        if (verdict.outer_v6) begin
            made[0] = {4'd6, verdict.tos, 20'd0};
            made[1] = {verdict.udp_len, UDP, 8'd64};
            for (int unsigned word = 0; word < 4; word++) begin
                made[2+word] = verdict.source[32*(3-word)+:32];
                made[6+word] = verdict.destination[32*(3-word)+:32];
            end
            for (int unsigned word = 0; word < 6; word++) made[10+word] = datagram[word];
        end else begin
            made[0] = {8'h45, verdict.tos, verdict.udp_len + 16'd20};
            made[1] = 32'h0000_4000;
            made[2] = {8'd64, UDP, ~fold(verdict.ip_sum)};
            made[3] = verdict.source[31:0];
            made[4] = verdict.destination[31:0];
            for (int unsigned word = 0; word < 6; word++) made[5+word] = datagram[word];
        end
    end

    event_t                     decision;
    logic                       is_packet;   // the frame must reach the end of its packet
    logic [COUNT_W-1:0]         packet_end;
    logic                       is_v6;
    logic [7:0]                 hops;
    logic [15:0]                checksum;
    logic [ID_W-1:0]            entry_used;
    logic [COUNT_W-1:0]         octets_used;
    logic [111:0]               ethernet;
    logic [WORDS_MAX-1:0][31:0] outer;
    logic [KINDS-1:0]           kind;        // which of them it is, one bit each
    logic [6:0]                 headers_len; // octets before the packet
    wire logic [1:0] kind_made = {verdict.outer_v6, verdict.has_container};
    wire logic [6:0] len_made = 7'd14 + 7'({OUTER_WORDS[kind_made], 2'b00});
    always_ff @(posedge clk) begin
        if (decided) begin
            decision    <= verdict.because;
            is_packet   <= !is_host(verdict.because);
            packet_end  <= COUNT_W'(14) + verdict.total;
            is_v6       <= verdict.is_v6;
            hops        <= verdict.hops;
            checksum    <= verdict.checksum;
            entry_used  <= verdict.entry;
            octets_used <= verdict.total;
            ethernet    <= {verdict.link, verdict.outer_v6 ? TYPE_IPV6 : TYPE_IPV4};
            outer       <= made;
            kind        <= KINDS'(1) << kind_made;
            headers_len <= len_made;
        end
    end

    // The frame in stage 0.
    logic               finished; // all of a packet has left
    logic [COUNT_W-1:0] left;     // octets of it that have not
    logic [1:0]         sent;     // beats that have; it stays at 3
    logic               rest;     // the last beat has been shifted, and its rest is to leave
    logic [OCTETS-1:0][7:0] previous;

    wire logic               end_error;
    wire logic               end_known;
    wire logic [COUNT_W-1:0] end_length;
    axis_frame_end #(.DEPTH(DEPTH), .COUNT_W(COUNT_W)) head_end (
        .valid, .last, .user, .count, .is_known(end_known), .has_error(end_error), .length(end_length)
    );

    // Beats that are headers alone: the frame's own wait.
    logic is_behind;
    always_comb begin
        is_behind = 1'b0;
        for (int unsigned at = 0; at < KINDS; at++) begin
            if (kind[at] && sent >= 2'(4 * int'(OUTER_WORDS[at]) / int'(OCTETS))) is_behind = 1'b1;
        end
    end
    wire logic forwards = decision == FORWARDED;
    wire logic hosts = is_host(decision);
    wire logic cut_short = is_packet && end_known && end_length < packet_end;
    wire logic ends_out = left <= COUNT_W'(OCTETS) || rest;
    wire logic leaves = m_axis_tvalid && m_axis_tready;

    assign m_axis_tvalid = head_valid && forwards && !finished;
    assign host_axis_tvalid = head_valid && hosts;
    assign head_taken = head_valid && (m_axis_tvalid ? leaves && is_behind && (!last[0] || ends_out) :
        host_axis_tvalid ? host_axis_tready : 1'b1);

    logic [OCTETS-1:0][7:0] changed;
    always_comb begin
        changed = data[0];
        if (first[0]) begin
            if (is_v6) changed[21] = hops;
            else begin
                changed[22] = hops;
                {changed[24], changed[25]} = checksum;
            end
        end
    end

    always_ff @(posedge clk) begin
        if (leaves && is_behind) previous <= changed;
        if (decided) begin
            finished <= 1'b0;
            left     <= COUNT_W'(len_made) + verdict.total;
            sent     <= '0;
            rest     <= 1'b0;
        end else if (leaves) begin
            finished <= ends_out;
            left     <= left - COUNT_W'(OCTETS);
            if (sent != 2'd3) sent <= sent + 2'd1;
            rest <= is_behind && last[0];
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

    // The packet goes back by the words before it, and the headers stand there.
    localparam int unsigned HEADER_BEATS = (14 + 4 * WORDS_MAX + OCTETS - 1) / OCTETS;
    wire logic [HEADER_BEATS*OCTETS-1:0][7:0] headers;
    for (genvar at = 0; at < HEADER_BEATS * OCTETS; at++) begin : g_header
        if (at < 14) begin : g_ethernet
            assign headers[at] = ethernet[8*(13-at)+:8];
        end else if (at < 14 + 4 * WORDS_MAX) begin : g_outer
            assign headers[at] = outer[(at-14)/4][8*(3-(at-14)%4)+:8];
        end else begin : g_none
            assign headers[at] = 8'd0;
        end
    end
    wire logic [2*OCTETS-1:0][7:0] both = {changed, previous};
    logic [OCTETS-1:0][7:0] built;
    always_comb begin
        for (int unsigned at = 0; at < OCTETS; at++) begin
            built[at] = 8'd0;
            for (int unsigned of = 0; of < KINDS; of++) begin
                if (kind[of]) built[at] |= both[OCTETS+at-4*int'(OUTER_WORDS[of])%OCTETS];
            end
            for (int unsigned beat = 0; beat < HEADER_BEATS; beat++) begin
                if (sent == 2'(beat) && 7'(beat * OCTETS + at) < headers_len) built[at] = headers[beat*OCTETS+at];
            end
        end
    end

    logic [OCTETS-1:0] keep_out;
    always_comb begin
        for (int unsigned at = 0; at < OCTETS; at++) keep_out[at] = left > COUNT_W'(at);
    end

    assign m_axis_tdata = built;
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
    gtpu_regs #(.DATA_W(DATA_W), .IDENTIFIER(32'h4754_4531), .HAS_ROUTES(1'b0)) regs (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid(bus_wvalid[0]), .s_axil_awready(regs_awready),
        .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid(bus_wvalid[0]), .s_axil_wready(bus_wready[0]),
        .s_axil_bresp(bus_bresp[0]), .s_axil_bvalid(bus_bvalid[0]), .s_axil_bready(bus_bready),
        .s_axil_araddr, .s_axil_arvalid(bus_arvalid[0]), .s_axil_arready(bus_arready[0]),
        .s_axil_rdata(bus_rdata[0]), .s_axil_rresp(bus_rresp[0]), .s_axil_rvalid(bus_rvalid[0]), .s_axil_rready(bus_rready),
        .settings, .routes_v4, .routes_v6, .hop_index, .hop, .ready(running), .event_valid, .event_code
    );
    gtpu_lookup #(.KEY_W($bits(ue_t)), .VAL_W($bits(downlink_t)), .IDX_W(IDX_W)) lookup (
        .clk, .rst,
        .asks(came && looks_up), .key(key), .octets(state[LOOKUP].ip.total[15:0]),
        .hit, .entry, .value(session), .taken(judged && state[DECIDE].looked),
        .awaddr(s_axil_awaddr[7:0]), .wdata(s_axil_wdata), .wstrb(s_axil_wstrb),
        .wvalid(bus_wvalid[1]), .wready(bus_wready[1]),
        .bresp(bus_bresp[1]), .bvalid(bus_bvalid[1]), .bready(bus_bready),
        .araddr(s_axil_araddr[7:0]), .arvalid(bus_arvalid[1]), .arready(bus_arready[1]),
        .rdata(bus_rdata[1]), .rresp(bus_rresp[1]), .rvalid(bus_rvalid[1]), .rready(bus_rready)
    );
endmodule

`default_nettype wire
