// Registers of the core that puts packets into GRE tunnels on AXI4-Lite: tunnels, counters. The map is hdl/regs.toml.
//
// What is not there, less than a word, not aligned, or a value that means nothing is answered with SLVERR and changes nothing. Tunnels
// cannot be read back. A tunnel is written with its `valid` bit clear, which is in its last word, and then made valid.

`default_nettype none

module gre_tunnels
    import net_pkg::*;
    import gre_tunnel_pkg::*;
#(
    parameter int unsigned DATA_W = 256
) (
    input  wire logic        clk,
    input  wire logic        rst,

    input  wire logic [11:0] s_axil_awaddr,
    input  wire logic        s_axil_awvalid,
    output wire logic        s_axil_awready,
    input  wire logic [31:0] s_axil_wdata,
    input  wire logic [3:0]  s_axil_wstrb,
    input  wire logic        s_axil_wvalid,
    output wire logic        s_axil_wready,
    output wire logic [1:0]  s_axil_bresp,
    output wire logic        s_axil_bvalid,
    input  wire logic        s_axil_bready,
    input  wire logic [11:0] s_axil_araddr,
    input  wire logic        s_axil_arvalid,
    output wire logic        s_axil_arready,
    output wire logic [31:0] s_axil_rdata,
    output wire logic [1:0]  s_axil_rresp,
    output wire logic        s_axil_rvalid,
    input  wire logic        s_axil_rready,

    // Of a frame that goes into no tunnel, in octets.
    output wire logic [COUNT_W-1:0]   length_max,

    // Which tunnel is for a packet, in the same clock: the first. Without an IP header only its Ethernet header matters.
    input  wire logic                 is_v4,
    input  wire logic                 is_v6,
    input  wire logic [127:0]         source,
    input  wire logic [127:0]         destination,
    output wire logic                 found,
    output wire logic [TUNNEL_W-1:0]  tunnel,
    output wire outer_t               outer,

    // Counters can take events.
    output wire logic                 ready,
    // A frame has ended.
    input  wire logic                 event_valid,
    input  wire event_t               event_code,
    // Of what went into a tunnel.
    input  wire logic [TUNNEL_W-1:0]  event_tunnel,
    input  wire logic [COUNT_W-1:0]   event_octets
);
    localparam logic [31:0] IDENTIFIER = 32'h4752_5031; // "GRP1"
    localparam int unsigned OCTETS_W = 48;

    wire logic        write;
    wire logic [11:0] w_addr;
    wire logic [31:0] w_data;
    logic             fits;
    wire logic [11:0] r_addr;
    logic             known;
    logic [31:0]      value;
    // A register is a word: the slave asks for aligned ones.
    wire logic unused_read_addr = &{1'b0, r_addr[1:0]};
    axil_slave slave (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid, .s_axil_wready,
        .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid, .s_axil_arready,
        .s_axil_rdata, .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
        .write, .write_addr(w_addr), .write_data(w_data), .write_fits(fits),
        .read_addr(r_addr), .read_value(value), .read_known(known)
    );

    // A tunnel has 32 words, of which 31 are used.
    wire logic at_length = w_addr == 12'h008 && w_data[31:COUNT_W] == '0;
    wire logic at_tunnel = w_addr[11:10] == 2'b01;
    wire logic [TUNNEL_W-1:0] w_tunnel = w_addr[7+:TUNNEL_W];
    wire logic [4:0] w_word = w_addr[6:2];
    wire flags_t w_flags = '{
        hops: w_data[23:16], spare: '0, host: w_data[12], copy: w_data[11], clear: w_data[10], route: w_data[9],
        dscp_uniform: w_data[8], ttl_uniform: w_data[7], has_checksum: w_data[6], has_key: w_data[5],
        ethernet: w_data[4], other: w_data[3], ipv6: w_data[2], ipv4: w_data[1], valid: w_data[0]
    };
    always_comb begin
        fits = at_length;
        if (at_tunnel) begin
            unique case (w_word)
                5'd25, 5'd27: fits = w_data[31:16] == '0;
                // An outer packet has up to 65535 octets, and a header of its family.
                5'd29: fits = w_data[31:16] == '0;
                5'd30: fits = w_data[31:1] == '0;
                // What has no IP header has no packet to take out of its Ethernet frame.
                5'd31: fits = {w_data[31:24], w_data[15:13]} == '0 && (!w_flags.other || w_flags.ethernet);
                default: fits = 1'b1;
            endcase
        end
    end

    logic [COUNT_W-1:0]   length_now;
    match_t [TUNNELS-1:0] wanted;
    flags_t [TUNNELS-1:0] flags;
    assign length_max = length_now;
    always_ff @(posedge clk) begin
        if (write && at_length) length_now <= w_data[COUNT_W-1:0];
        for (int unsigned at = 0; at < TUNNELS; at++) begin
            if (write && at_tunnel && fits && w_tunnel == TUNNEL_W'(at)) begin
                // Most significant word first.
                for (int unsigned word = 0; word < 4; word++) begin
                    if (w_word == 5'(word)) wanted[at].source[32*(3-word)+:32] <= w_data;
                    if (w_word == 5'(word + 4)) wanted[at].source_mask[32*(3-word)+:32] <= w_data;
                    if (w_word == 5'(word + 8)) wanted[at].destination[32*(3-word)+:32] <= w_data;
                    if (w_word == 5'(word + 12)) wanted[at].destination_mask[32*(3-word)+:32] <= w_data;
                end
                if (w_word == 5'd31) flags[at] <= w_flags;
            end
        end
        if (rst) begin
            // Everything passes until there is a tunnel; frames as long as there are.
            length_now <= '1;
            for (int unsigned at = 0; at < TUNNELS; at++) flags[at].valid <= 1'b0;
        end
    end

    logic                met_any;
    logic [TUNNEL_W-1:0] met;
    always_comb begin
        met_any = 1'b0;
        met     = '0;
        for (int at = int'(TUNNELS) - 1; at >= 0; at--) begin
            if (flags[at].valid && (is_v4 ? flags[at].ipv4 : is_v6 ? flags[at].ipv6 : flags[at].other) &&
                (source & wanted[at].source_mask) == wanted[at].source &&
                (destination & wanted[at].destination_mask) == wanted[at].destination) begin
                met_any = 1'b1;
                met     = TUNNEL_W'(at);
            end
        end
    end
    assign found = met_any;
    assign tunnel = met;

    // What is put before packets is memory, so each of its words has a place of its own: 16 to 30.
    localparam int unsigned OUTER_WORDS = 15;
    wire logic [OUTER_WORDS-1:0][31:0] words;
    for (genvar word = 0; word < OUTER_WORDS; word++) begin : g_word
        logic [31:0] kept[TUNNELS];
        always_ff @(posedge clk) begin
            if (write && at_tunnel && fits && w_word == 5'(word + 16)) kept[w_tunnel] <= w_data;
        end
        assign words[word] = kept[met];
    end
    // Of some words the upper bits are zero.
    wire logic unused_words = &{1'b0, words};
    assign outer = '{
        flags: flags[met],
        is_v6: words[14][0],
        local_address: {words[0], words[1], words[2], words[3]},
        remote: {words[4], words[5], words[6], words[7]},
        key: words[8],
        hop_dst: {words[9][15:0], words[10]},
        hop_src: {words[11][15:0], words[12]},
        room: words[13][COUNT_W-1:0]
    };

    // Counters: one event a frame, registered.
    logic                counted;
    event_t              code;
    logic [TUNNEL_W-1:0] of;
    logic [COUNT_W-1:0]  octets;
    always_ff @(posedge clk) begin
        counted <= event_valid && !rst;
        code    <= event_code;
        of      <= event_tunnel;
        octets  <= event_octets;
    end
    wire logic into = counted && code == ENCAPSULATED;
    wire logic [31:0]         event_count;
    wire logic [31:0]         tunnel_packets;
    wire logic [OCTETS_W-1:0] tunnel_octets;
    wire logic [2:0]          counters_ready;
    // Registered: it is in the way of every beat.
    logic all_ready;
    always_ff @(posedge clk) all_ready <= &counters_ready && !rst;
    assign ready = all_ready;
    event_counters #(.COUNTERS(32), .WIDTH(32), .ADD_W(1)) events (
        .clk, .rst, .ready(counters_ready[0]),
        .add(counted), .index(code), .amount(1'b1),
        .read_index(r_addr[6:2]), .read_value(event_count)
    );
    event_counters #(.COUNTERS(TUNNELS), .WIDTH(32), .ADD_W(1)) packets (
        .clk, .rst, .ready(counters_ready[1]),
        .add(into), .index(of), .amount(1'b1),
        .read_index(r_addr[4+:TUNNEL_W]), .read_value(tunnel_packets)
    );
    event_counters #(.COUNTERS(TUNNELS), .WIDTH(OCTETS_W), .ADD_W(COUNT_W)) bytes (
        .clk, .rst, .ready(counters_ready[2]),
        .add(into), .index(of), .amount(octets),
        .read_index(r_addr[4+:TUNNEL_W]), .read_value(tunnel_octets)
    );

    always_comb begin
        known = 1'b1;
        value = '0;
        if (r_addr[11:2] == 10'h000) value = IDENTIFIER;
        else if (r_addr[11:2] == 10'h001) value = {16'd0, 8'(TUNNELS), 8'(DATA_W / 8)};
        else if (r_addr[11:2] == 10'h002) value = 32'(length_now);
        else if (r_addr[11:7] == 5'b00001) value = event_count;
        else if (r_addr[11:7] == 5'b10000) begin
            unique case (r_addr[3:2])
                2'd0: value = tunnel_packets;
                2'd1: value = tunnel_octets[31:0];
                2'd2: value = {16'd0, tunnel_octets[47:32]};
                default: known = 1'b0;
            endcase
        end else known = 1'b0;
    end
endmodule

`default_nettype wire
