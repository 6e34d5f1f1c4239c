// GRE encapsulation (RFC 2784, RFC 2890) on an AXI4-Stream of Ethernet frames: a packet that a tunnel is for gets outer IP and GRE
// headers, what no tunnel is for passes as it is. The software twin is kaido-gre, with the same tunnels and reasons.
//
//   s_axis ──▶ axis_window ──▶ axis_frame_fifo ──▶ axis_window ──▶ change, shift, headers ──▶ m_axis
//                 ╰──▶ gre_sum ──▶ length, sum ──────▶ read ▶ match ▶ decide ──┘     ╰──▶ host_axis   unchanged; tuser says why
//                                                   gre_tunnels ◀── s_axil
//
// The outer headers tell the length of what is behind them and may have a checksum of it. So a frame is stored until its end is there,
// and all is known of it before an octet of it leaves: no frame is marked at its end. A frame that the memory has no room for waits; one
// that is longer than the memory is dropped.
//
// tkeep is contiguous from octet 0 and full but in the last beat. s_axis_tuser with tlast marks a frame with an error.

`default_nettype none

module gre_encap
    import net_pkg::*;
    import ip_pkg::*;
    import gre_tunnel_pkg::*;
#(
    parameter int unsigned DATA_W = 256,
    // log2 of the beats of the memory.
    parameter int unsigned BEATS_W = 9
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
    // Never: what is to be dropped does not leave.
    output wire logic                m_axis_tuser,
    output wire logic                m_axis_tvalid,
    input  wire logic                m_axis_tready,

    output wire logic [DATA_W-1:0]   host_axis_tdata,
    output wire logic [DATA_W/8-1:0] host_axis_tkeep,
    output wire logic                host_axis_tlast,
    // An event_t; a frame with an error is not the host's.
    output wire logic [5:0]          host_axis_tuser,
    output wire logic                host_axis_tvalid,
    input  wire logic                host_axis_tready,

    // What became of each frame, in their order, when its last beat has gone.
    output wire logic                event_valid,
    output wire event_t              event_code,

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
    // Beats that hold Ethernet with two tags and ten words of IP.
    localparam int unsigned READ_BEATS = (14 + 8 + 40 + OCTETS - 1) / OCTETS;
    // The stages of a frame's first beat in which it is read, its tunnel found, and the headers made.
    localparam int unsigned READ = 3;
    localparam int unsigned MATCH = 2;
    localparam int unsigned DECIDE = 1;
    localparam int unsigned DEPTH = READ + READ_BEATS;
    // Octets of the longest headers: Ethernet with two tags, IPv6, GRE with checksum and key.
    localparam int unsigned LINK_MAX = 22;
    localparam int unsigned OUTER_WORDS = 13;
    localparam int unsigned HEADER_BEATS = (LINK_MAX + 4 * OUTER_WORDS + OCTETS - 1) / OCTETS;
    localparam int unsigned HEADER_OCTETS = HEADER_BEATS * OCTETS;
    localparam logic [7:0] GRE = 8'd47;
    localparam logic [15:0] TYPE_ETHERNET = 16'h6558;
    localparam logic [BEATS_W:0] BEATS = (BEATS_W + 1)'(2 ** BEATS_W);

    wire logic running;

    // Tags of a frame: up to three are told.
    function automatic logic [1:0] tags_of(input logic [23:0][7:0] octets);
        logic [2:0] vlan;
        for (int unsigned at = 0; at < 3; at++) vlan[at] = is_vlan({octets[12+4*at], octets[13+4*at]});
        return !vlan[0] ? 2'd0 : !vlan[1] ? 2'd1 : !vlan[2] ? 2'd2 : 2'd3;
    endfunction

    // What comes in: its length, and the sum of its IP packet.
    wire logic               came;
    wire logic               came_taken;
    wire logic               came_valid;
    wire logic               came_load;
    wire logic [DATA_W-1:0]  came_data;
    wire logic [OCTETS-1:0]  came_keep;
    wire logic               came_first;
    wire logic               came_last;
    wire logic               came_user;
    wire logic [COUNT_W-1:0] came_count;
    wire logic               came_ready;
    assign s_axis_tready = came_ready && running;
    axis_window #(.DATA_W(DATA_W), .DEPTH(1), .COUNT_W(COUNT_W)) arrival (
        .clk, .rst,
        .s_axis_tdata, .s_axis_tkeep, .s_axis_tlast, .s_axis_tuser,
        .s_axis_tvalid(s_axis_tvalid && running),
        .s_axis_tready(came_ready),
        .head_valid(came), .head_taken(came_taken), .valid(came_valid), .load(came_load), .data(came_data),
        .keep(came_keep), .first(came_first), .last(came_last), .user(came_user), .count(came_count)
    );
    wire logic unused_arrival = &{1'b0, came_valid, came_load};

    wire logic [OCTETS-1:0][7:0] came_octets = came_data;
    wire logic [1:0] came_tags = tags_of(came_octets[23:0]);
    // Octets to the IP header, if there are no more tags than are read, and of the packet by its header.
    wire logic [4:0] came_link = 5'd14 + {1'b0, came_tags, 2'b00};
    wire logic came_v6 = came_octets[came_link][7:4] == 4'd6;
    wire logic [15:0] came_said = came_v6 ? {came_octets[came_link+5'd4], came_octets[came_link+5'd5]} :
        {came_octets[came_link+5'd2], came_octets[came_link+5'd3]};
    wire logic [COUNT_W-1:0] came_end = COUNT_W'(came_said) + COUNT_W'(came_link) + (came_v6 ? COUNT_W'(40) : '0);
    wire logic stores;
    wire logic [15:0] total;
    wire logic [1:0] unused_right;
    gre_sum #(.DATA_W(DATA_W), .PARSED(1), .BEFORE(14)) checksum (
        .clk, .load(stores), .is_first(came_first), .octets(came_octets),
        .gre_at({3'd0, came_tags}), .packet_end(came_end), .total, .right(unused_right)
    );

    // Storing. A frame that is longer than the memory ends there for its last beat; the others of its beats are taken and lost.
    logic [BEATS_W:0]   used;
    logic [BEATS_W-1:0] beat_number;
    logic               swallows;
    wire logic stored_shown;
    wire logic stored_taken;
    wire logic is_full = used == BEATS;
    wire logic at_limit = beat_number == '1 && !came_last;
    assign stores = came && !swallows && !is_full;
    assign came_taken = came && (swallows || !is_full);
    wire logic ends = stores && (came_last || at_limit);
    always_ff @(posedge clk) begin
        used <= used + (BEATS_W + 1)'(stores) - (BEATS_W + 1)'(stored_taken);
        if (stores) beat_number <= ends ? '0 : beat_number + 1'b1;
        if (came_taken) swallows <= !came_last && (swallows || at_limit);
        if (rst) begin
            used        <= '0;
            beat_number <= '0;
            swallows    <= 1'b0;
        end
    end

    wire logic [DATA_W-1:0] stored_data;
    wire logic [OCTETS-1:0] stored_keep;
    wire logic              stored_last;
    wire logic              stored_user;
    wire logic              stored_ready;
    wire logic [1:0]        unused_stored;
    assign stored_taken = stored_shown && stored_ready;
    axis_frame_fifo #(.DATA_W(DATA_W), .USER_W(1), .BEATS_W(BEATS_W)) memory (
        .clk, .rst,
        .s_axis_tdata(came_data), .s_axis_tkeep(came_keep), .s_axis_tlast(ends), .s_axis_tuser(1'b0),
        .s_axis_tvalid(stores),
        .m_axis_tdata(stored_data), .m_axis_tkeep(stored_keep), .m_axis_tlast(stored_last), .m_axis_tuser(stored_user),
        .m_axis_tvalid(stored_shown), .m_axis_tready(stored_ready),
        .frame_taken(unused_stored[0]), .frame_dropped(unused_stored[1])
    );

    // What is known of a frame at its end. The sum is there a clock later; frames whose first beats have left the memory wait here too.
    typedef struct packed {
        logic [12:0]        spare;     // to whole octets
        logic               too_long;
        logic               has_error;
        logic [COUNT_W-1:0] length;
        logic [15:0]        sum;
    } known_t;
    localparam int unsigned KNOWN_OCTETS = $bits(known_t) / 8;
    logic   ended;
    known_t known;
    always_ff @(posedge clk) begin
        ended <= ends && !rst;
        known <= '{spare: '0, too_long: at_limit, has_error: came_user, length: came_count, sum: '0};
    end
    known_t told;
    always_comb begin
        told     = known;
        told.sum = total;
    end
    wire logic [8*KNOWN_OCTETS-1:0] shown;
    wire known_t of_frame = shown;
    wire logic known_taken;
    wire logic [KNOWN_OCTETS-1:0] unused_keep;
    wire logic [4:0] unused_known;
    axis_frame_fifo #(.DATA_W(8 * KNOWN_OCTETS), .USER_W(1), .BEATS_W(BEATS_W + 1)) ends_known (
        .clk, .rst,
        .s_axis_tdata(told), .s_axis_tkeep('1), .s_axis_tlast(1'b1), .s_axis_tuser(1'b0), .s_axis_tvalid(ended),
        .m_axis_tdata(shown), .m_axis_tkeep(unused_keep), .m_axis_tlast(unused_known[0]), .m_axis_tuser(unused_known[1]),
        .m_axis_tvalid(unused_known[2]), .m_axis_tready(known_taken),
        .frame_taken(unused_known[3]), .frame_dropped(unused_known[4])
    );
    wire logic unused_told = &{1'b0, of_frame, stored_user};

    // The frame's beats side by side.
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
    wire logic unused_stages = &{1'b0, valid, load, data, keep, first, last, user, count};
    axis_window #(.DATA_W(DATA_W), .DEPTH(DEPTH), .COUNT_W(COUNT_W)) stages (
        .clk, .rst,
        .s_axis_tdata(stored_data), .s_axis_tkeep(stored_keep), .s_axis_tlast(stored_last), .s_axis_tuser(1'b0),
        .s_axis_tvalid(stored_shown),
        .s_axis_tready(stored_ready),
        .head_valid, .head_taken, .valid, .load, .data, .keep, .first, .last, .user, .count
    );

    // Reading: Ethernet and IP. What stands behind the end of a shorter frame means nothing.
    typedef struct packed {
        event_t             because;   // PASSED while nothing is against it
        logic [1:0]         tags;
        logic               is_ip;     // in good order, but for the checksum
        ip_t                ip;
        logic               may_be_cut;
        logic [15:0]        ethertype;
        logic [COUNT_W-1:0] length;
        logic [15:0]        sum;
    } read_t;
    localparam int unsigned READ_OCTETS = READ_BEATS * OCTETS;
    wire logic [READ_OCTETS-1:0][7:0] front = data[DEPTH-1:READ];
    wire logic [IP_WORDS+1:0][31:0] words;
    axis_words #(.OCTETS(READ_OCTETS), .WORDS(IP_WORDS + 2)) read_words (.octets(front), .words);
    wire logic [1:0] tags = tags_of(front[23:0]);
    wire logic [4:0] link_len = 5'd14 + {1'b0, tags, 2'b00};
    wire logic [15:0] ethertype = {front[link_len-5'd2], front[link_len-5'd1]};
    wire logic [IP_WORDS-1:0][31:0] ip_words =
        tags == 2'd0 ? words[IP_WORDS-1:0] : tags == 2'd1 ? words[IP_WORDS:1] : words[IP_WORDS+1:2];
    wire logic [COUNT_W-1:0] available = of_frame.length - COUNT_W'(link_len);
    wire ip_t packet = ip_read(ip_words, available);
    wire logic typed_v4 = ethertype == TYPE_IPV4;
    wire logic typed_v6 = ethertype == TYPE_IPV6;
    wire logic no_link = of_frame.length < COUNT_W'(link_len);
    // The next header of IPv6, where there is one.
    wire logic has_next = typed_v6 && available >= COUNT_W'(40) && packet.is_v6;
    wire logic is_tunnel = (typed_v4 && available >= COUNT_W'(10) && ip_words[2][23:16] == GRE) ||
        (typed_v6 && available >= COUNT_W'(7) && ip_words[1][15:8] == GRE);
    read_t read;
    always_comb begin
        read = '{
            because: PASSED,
            tags: tags,
            is_ip: (typed_v4 && !packet.is_v6 && available >= COUNT_W'(20) || has_next) && !packet.malformed,
            ip: packet,
            may_be_cut: typed_v4 && !ip_words[1][14],
            ethertype: ethertype,
            length: of_frame.length,
            sum: of_frame.sum
        };
        if (of_frame.too_long) read.because = TOO_BIG;
        else if (of_frame.has_error) read.because = FRAME_ERROR;
        else if (no_link) read.because = HOST_SHORT;
        else if (tags == 2'd3) read.because = HOST_TAGS;
        else if (is_tunnel) read.because = HOST_TUNNEL;
        else if (has_next && is_extension(packet.protocol)) read.because = HOST_EXTENSION;
        else if (typed_v4 && packet.deep && available >= COUNT_W'(20)) read.because = HOST_DEEP;
    end
    assign known_taken = load[MATCH] && first[READ];
    read_t found;
    always_ff @(posedge clk) begin
        if (load[MATCH] && first[READ]) found <= read;
    end

    // Its tunnel.
    wire ip_t found_ip = found.ip;
    wire logic has_ip = found.is_ip && (found_ip.is_v6 || is_right(found_ip.sum));
    wire logic               is_for;
    wire logic [TUNNEL_W-1:0] tunnel;
    wire outer_t             outer;
    wire logic [COUNT_W-1:0] length_max;
    typedef struct packed {
        read_t               read;
        logic                has_ip;
        logic                is_for;
        logic [TUNNEL_W-1:0] tunnel;
        outer_t              outer;
    } matched_t;
    matched_t matched;
    always_ff @(posedge clk) begin
        if (load[DECIDE] && first[MATCH])
            matched <= '{read: found, has_ip: has_ip, is_for: is_for, tunnel: tunnel, outer: outer};
    end

    // What becomes of it.
    wire read_t  front_read = matched.read;
    wire ip_t    inner = front_read.ip;
    wire outer_t out = matched.outer;
    wire flags_t flags = out.flags;
    wire logic unused_matched = &{1'b0, matched, front_read, inner, out, flags, found, found_ip};
    wire logic [COUNT_W-1:0] load_len = flags.ethernet ? front_read.length : inner.total;
    wire logic [1:0] gre_more = {1'b0, flags.has_checksum} + {1'b0, flags.has_key};
    wire logic [3:0] outer_words = (out.is_v6 ? 4'd11 : 4'd6) + {2'd0, gre_more};
    // One more than 17 bits would lose.
    wire logic [COUNT_W:0] outer_len = {1'b0, load_len} + (COUNT_W + 1)'({outer_words, 2'b00});
    wire logic may_be_cut = flags.clear || (flags.copy && matched.has_ip && front_read.may_be_cut);
    event_t because;
    always_comb begin
        because = front_read.because;
        if (because == PASSED) begin
            if (!matched.is_for) begin
                if (front_read.length > length_max) because = TOO_BIG;
            end else if (flags.host) because = HOST_ROUTE;
            else if (flags.ethernet && flags.has_checksum) because = HOST_CHECKSUM;
            else if (flags.route && !flags.ethernet && inner.hops <= 8'd1) because = HOST_TTL;
            else if (outer_len > {1'b0, out.room}) because = HOST_MTU;
            else if (may_be_cut && !out.is_v6) because = HOST_NUMBER;
            else because = ENCAPSULATED;
        end
    end

    wire logic [7:0] hops = matched.has_ip && flags.ttl_uniform ? inner.hops : flags.hops;
    wire logic [7:0] tos = matched.has_ip ? {flags.dscp_uniform ? inner.tos[7:2] : 6'd0, inner.tos[1:0]} : 8'd0;
    wire logic [15:0] protocol = flags.ethernet ? TYPE_ETHERNET : front_read.ethertype;
    wire logic [15:0] gre_flags = {flags.has_checksum, 1'b0, flags.has_key, 13'd0};
    wire logic loses_hop = flags.route && !flags.ethernet;
    // The hop limit of IPv6 is in no checksum of its own: one less makes the sum one less. That of IPv4 changes with its checksum.
    wire logic [20:0] gre_sum = {5'd0, front_read.sum} + {5'd0, gre_flags} + {5'd0, protocol} +
        (flags.has_key ? {5'd0, out.key[31:16]} + {5'd0, out.key[15:0]} : 21'd0) +
        (loses_hop && inner.is_v6 ? 21'h0fffe : 21'd0);
    wire logic [20:0] ip_sum = {5'd0, 8'h45, tos} + {5'd0, outer_len[15:0]} + 21'h04000 + {5'd0, hops, GRE} +
        {5'd0, out.local_address[31:16]} + {5'd0, out.local_address[15:0]} +
        {5'd0, out.remote[31:16]} + {5'd0, out.remote[15:0]};
    wire logic [15:0] payload_len = outer_len[15:0] - 16'd40;
    wire logic unused_len = &{1'b0, outer_len};

    logic [OUTER_WORDS-1:0][31:0] made;
    always_comb begin
        logic [2:0][31:0] gre;
        gre    = '0;
        gre[0] = {gre_flags, protocol};
        if (flags.has_checksum) gre[1] = {~fold(gre_sum), 16'd0};
        if (flags.has_key) gre[flags.has_checksum ? 2 : 1] = out.key;
        made = '0;
        if (out.is_v6) begin
            made[0] = {4'd6, tos, 20'd0};
            made[1] = {payload_len, GRE, hops};
            for (int unsigned word = 0; word < 4; word++) begin
                made[2+word] = out.local_address[32*(3-word)+:32];
                made[6+word] = out.remote[32*(3-word)+:32];
            end
            made[12:10] = gre;
        end else begin
            made[0] = {8'h45, tos, outer_len[15:0]};
            made[1] = 32'h0000_4000;
            made[2] = {hops, GRE, ~fold(ip_sum)};
            made[3] = out.local_address[31:0];
            made[4] = out.remote[31:0];
            made[7:5] = gre;
        end
    end

    // Ethernet goes with the packet, tags and all, or is that of the next hop; and then the type of what is behind it.
    wire logic [1:0] link_tags = flags.route ? 2'd0 : front_read.tags;
    wire logic [15:0] link_type = out.is_v6 ? TYPE_IPV6 : TYPE_IPV4;
    wire logic [OCTETS-1:0][7:0] beat = data[DECIDE];
    logic [LINK_MAX+4*OUTER_WORDS-1:0][7:0] headers_made;
    always_comb begin
        for (int unsigned at = 0; at < LINK_MAX + 4 * OUTER_WORDS; at++) begin
            headers_made[at] = 8'd0;
            // So many tags are before what stands here.
            for (int unsigned tags_before = 0; tags_before < 3; tags_before++) begin
                if (link_tags == 2'(tags_before) && at >= 12 + 4 * tags_before) begin
                    if (at == 12 + 4 * tags_before) headers_made[at] = link_type[15:8];
                    else if (at == 13 + 4 * tags_before) headers_made[at] = link_type[7:0];
                    else if ((at - 14 - 4 * tags_before) / 4 < OUTER_WORDS)
                        headers_made[at] = made[(at-14-4*tags_before)/4][8*(3-(at-14-4*tags_before)%4)+:8];
                end else if (link_tags == 2'(tags_before)) begin
                    if (at < 6) headers_made[at] = flags.route ? out.hop_dst[8*(5-at)+:8] : beat[at];
                    else if (at < 12) headers_made[at] = flags.route ? out.hop_src[8*(11-at)+:8] : beat[at];
                    else headers_made[at] = beat[at];
                end
            end
        end
    end
    wire logic unused_beat = &{1'b0, beat};

    // The frame in stage 0.
    wire logic decided = load[0] && first[DECIDE];
    // Octets before the packet, and by how many it goes back, in halves of a word: an Ethernet frame of two octets less than a word.
    wire logic [6:0] headers_next = 7'd14 + {3'd0, link_tags, 2'b00} + {1'b0, outer_words, 2'b00};
    wire logic [6:0] from_next = flags.ethernet ? 7'd0 : 7'd14 + {3'd0, front_read.tags, 2'b00};
    wire logic [6:0] shift_next = headers_next - from_next;
    localparam int unsigned SHIFT_W = $clog2(OCTETS);

    event_t              decision;
    logic [TUNNEL_W-1:0] used_tunnel;
    logic [COUNT_W-1:0]  used_octets;
    logic [HEADER_OCTETS-1:0][7:0] headers;
    logic [6:0]          headers_len;
    logic [6:0]          shift;
    logic                changes;     // a hop less
    logic                is_v6;
    logic [1:0]          at_tags;
    logic [7:0]          hops_new;
    logic [15:0]         checksum_new;
    always_ff @(posedge clk) begin
        if (decided) begin
            decision     <= because;
            used_tunnel  <= matched.tunnel;
            used_octets  <= front_read.length;
            headers      <= (8 * HEADER_OCTETS)'(headers_made);
            headers_len  <= headers_next;
            shift        <= shift_next;
            changes      <= loses_hop;
            is_v6        <= inner.is_v6;
            at_tags      <= front_read.tags;
            hops_new     <= inner.hops - 8'd1;
            checksum_new <= checksum_after(inner.checksum, inner.tos, inner.tos);
        end
    end

    logic                   finished; // all of a packet has left
    logic [COUNT_W:0]       left;     // octets of it that have not
    logic [1:0]             sent;     // beats that have; it stays at 3
    logic                   second;   // the beat in stage 0 is the second of its frame
    logic [OCTETS-1:0][7:0] previous;

    wire logic encapsulates = decision == ENCAPSULATED;
    wire logic passes = decision == PASSED;
    wire logic hosts = decision[4];
    // Beats that are headers alone: the frame's own wait.
    wire logic is_behind = {5'd0, sent} >= shift / 7'(OCTETS);
    wire logic ends_out = encapsulates ? left <= (COUNT_W + 1)'(OCTETS) : last[0];
    wire logic leaves = m_axis_tvalid && m_axis_tready;

    assign m_axis_tvalid = head_valid && (passes || (encapsulates && !finished));
    assign host_axis_tvalid = head_valid && hosts;
    assign head_taken = head_valid && (m_axis_tvalid ? leaves && (passes || (is_behind && (!last[0] || ends_out))) :
        host_axis_tvalid ? host_axis_tready : 1'b1);

    // A hop less. With two tags the checksum of IPv4 is behind the first 32 octets.
    logic [OCTETS-1:0][7:0] changed;
    always_comb begin
        changed = data[0];
        for (int unsigned tag = 0; tag < 3; tag++) begin
            if (changes && at_tags == 2'(tag)) begin
                if (first[0] && is_v6) changed[14+4*tag+7] = hops_new;
                if (first[0] && !is_v6) changed[14+4*tag+8] = hops_new;
                if (!is_v6 && (14 + 4 * tag + 10 < OCTETS ? first[0] : second)) begin
                    changed[(14+4*tag+10)%OCTETS] = checksum_new[15:8];
                    changed[(14+4*tag+11)%OCTETS] = checksum_new[7:0];
                end
            end
        end
    end

    always_ff @(posedge clk) begin
        if (head_taken) second <= first[0] && !last[0];
        if (leaves && is_behind) previous <= changed;
        if (decided) begin
            finished <= 1'b0;
            left     <= (COUNT_W + 1)'(headers_next) + {1'b0, load_len};
            sent     <= '0;
        end else if (leaves) begin
            finished <= ends_out;
            left     <= left - (COUNT_W + 1)'(OCTETS);
            if (sent != 2'd3) sent <= sent + 2'd1;
        end
    end

    // The packet goes back, by steps of a power of two, and the headers stand before it.
    logic [2*OCTETS-1:0][7:0] both;
    logic [OCTETS-1:0][7:0]   built;
    wire logic [SHIFT_W-1:0] back = shift[SHIFT_W-1:0];
    always_comb begin
        both = {changed, previous};
        for (int unsigned step = 1; step < SHIFT_W; step++) begin
            // What goes behind the end is of the beat that comes next.
            if (back[step]) both = both << (8 * 2 ** step);
        end
        built = both[2*OCTETS-1:OCTETS];
        for (int unsigned at = 0; at < OCTETS; at++) begin
            for (int unsigned number = 0; number < HEADER_BEATS; number++) begin
                if (sent == 2'(number) && 7'(number * OCTETS + at) < headers_len) built[at] = headers[number*OCTETS+at];
            end
        end
    end
    wire logic unused_back = &{1'b0, back};

    logic [OCTETS-1:0] keep_out;
    always_comb begin
        for (int unsigned at = 0; at < OCTETS; at++) keep_out[at] = left > (COUNT_W + 1)'(at);
    end

    assign m_axis_tdata = encapsulates ? built : data[0];
    assign m_axis_tkeep = encapsulates ? keep_out : keep[0];
    assign m_axis_tlast = ends_out;
    assign m_axis_tuser = 1'b0;

    assign host_axis_tdata = data[0];
    assign host_axis_tkeep = keep[0];
    assign host_axis_tlast = last[0];
    assign host_axis_tuser = {1'b0, decision};

    assign event_valid = head_taken && last[0];
    assign event_code = decision;

    gre_tunnels #(.DATA_W(DATA_W)) tunnels (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid, .s_axil_wready,
        .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid, .s_axil_arready,
        .s_axil_rdata, .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
        .length_max,
        .is_v4(has_ip && !found_ip.is_v6), .is_v6(has_ip && found_ip.is_v6),
        .source(found_ip.source), .destination(found_ip.destination),
        .found(is_for), .tunnel, .outer,
        .ready(running),
        .event_valid, .event_code, .event_tunnel(used_tunnel), .event_octets(used_octets)
    );
endmodule

`default_nettype wire
