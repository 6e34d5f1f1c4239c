// Registers of gtpu_decap and gtpu_encap on AXI4-Lite: addresses, next hops, counters. The map is hdl/regs.toml.
//
// What is not there, less than a word, not aligned, or a value that means nothing is answered with SLVERR and changes nothing. Next
// hops and routes cannot be read back.

`default_nettype none

module gtpu_regs
    import net_pkg::*;
    import gtpu_pkg::*;
#(
    parameter int unsigned DATA_W = 256,
    parameter logic [31:0] IDENTIFIER = 32'h4754_4431,
    // Destinations with routes of their own are asked for.
    parameter bit HAS_ROUTES = 1'b1
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

    output wire settings_t                 settings,
    output wire route_v4_t [ROUTES_V4-1:0] routes_v4,
    output wire route_v6_t [ROUTES_V6-1:0] routes_v6,

    // A next hop, in the same clock.
    input  wire logic [HOP_W-1:0] hop_index,
    output wire hop_t             hop,

    // Counters can take events.
    output wire logic   ready,
    // A frame has ended.
    input  wire logic   event_valid,
    input  wire event_t event_code
);
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

    settings_t                 now;
    route_v4_t [ROUTES_V4-1:0] now_v4;
    route_v6_t [ROUTES_V6-1:0] now_v6;
    assign settings = now;
    assign routes_v4 = now_v4;
    assign routes_v6 = now_v6;

    wire logic at_control = w_addr == 12'h008 && (w_data & 32'hffff_ff0e) == '0;
    wire logic at_packet_max = w_addr == 12'h00c && w_data[31:COUNT_W] == '0;
    wire logic at_mac_high = w_addr == 12'h010 && w_data[31:16] == '0;
    wire logic at_mac_low = w_addr == 12'h014;
    wire logic at_local_v4 = w_addr[11:3] == 9'h004;  // 0x020, 0x024
    wire logic at_local_v6 = w_addr[11:5] == 7'h02;   // 0x040 to 0x05c
    wire logic at_hop = w_addr[11:8] == 4'h1 && (w_addr[2] || w_data[31:16] == '0);
    wire logic at_route_v4 = HAS_ROUTES && w_addr[11:6] == 6'h08;
    wire logic at_route_v6 = HAS_ROUTES && w_addr[11:7] == 5'h05;
    assign fits = at_control || at_packet_max || at_mac_high || at_mac_low || at_local_v4 || at_local_v6 || at_hop ||
        at_route_v4 || at_route_v6;

    always_ff @(posedge clk) begin
        if (write && at_control) begin
            now.ecn <= w_data[0];
            {now.is_local_v6, now.is_local_v4} <= w_data[7:4];
        end
        if (write && at_packet_max) now.packet_max <= w_data[COUNT_W-1:0];
        if (write && at_mac_high) now.mac[47:32] <= w_data[15:0];
        if (write && at_mac_low) now.mac[31:0] <= w_data;
        for (int unsigned at = 0; at < LOCALS; at++) begin
            if (write && at_local_v4 && w_addr[2] == 1'(at)) now.local_v4[at] <= w_data;
            // Most significant word first.
            for (int unsigned word = 0; word < 4; word++) begin
                if (write && at_local_v6 && w_addr[4] == 1'(at) && w_addr[3:2] == 2'(word))
                    now.local_v6[at][32*(3-word)+:32] <= w_data;
            end
        end
        for (int unsigned at = 0; at < ROUTES_V4; at++) begin
            if (write && at_route_v4 && w_addr[5:3] == 3'(at)) begin
                if (!w_addr[2]) now_v4[at].address <= w_data;
                else now_v4[at].mask <= w_data;
            end
        end
        for (int unsigned at = 0; at < ROUTES_V6; at++) begin
            for (int unsigned word = 0; word < 4; word++) begin
                if (write && at_route_v6 && w_addr[6:5] == 2'(at) && w_addr[3:2] == 2'(word)) begin
                    if (!w_addr[4]) now_v6[at].address[32*(3-word)+:32] <= w_data;
                    else now_v6[at].mask[32*(3-word)+:32] <= w_data;
                end
            end
        end
        if (rst) begin
            // Without an own address no packet is of a tunnel; without its Ethernet address none is for this port.
            now.ecn <= 1'b1;
            now.packet_max <= '1;
            now.mac <= '0;
            now.is_local_v4 <= '0;
            now.is_local_v6 <= '0;
            // An address with a bit that its mask has not is met by no packet.
            now_v4 <= {ROUTES_V4{{32'hffff_ffff, 32'd0}}};
            now_v6 <= {ROUTES_V6{{{128{1'b1}}, 128'd0}}};
        end
    end

    // Next hops are memory, so the words of one have a place each.
    logic [15:0] dst_high[HOPS];
    logic [31:0] dst_low[HOPS];
    logic [15:0] src_high[HOPS];
    logic [31:0] src_low[HOPS];
    wire logic [HOP_W-1:0] w_hop = w_addr[7:4];
    always_ff @(posedge clk) begin
        if (write && at_hop) begin
            unique case (w_addr[3:2])
                2'd0: dst_high[w_hop] <= w_data[15:0];
                2'd1: dst_low[w_hop] <= w_data;
                2'd2: src_high[w_hop] <= w_data[15:0];
                default: src_low[w_hop] <= w_data;
            endcase
        end
    end
    assign hop = '{
        dst: {dst_high[hop_index], dst_low[hop_index]},
        src: {src_high[hop_index], src_low[hop_index]}
    };

    // Counters: one event a frame, registered.
    logic   counted;
    event_t code;
    always_ff @(posedge clk) begin
        counted <= event_valid && !rst;
        code    <= event_code;
    end
    wire logic [31:0] event_count;
    event_counters #(.COUNTERS(32), .WIDTH(32), .ADD_W(1)) events (
        .clk, .rst, .ready,
        .add(counted), .index(code), .amount(1'b1),
        .read_index(r_addr[6:2]), .read_value(event_count)
    );

    always_comb begin
        known = 1'b1;
        value = '0;
        if (r_addr[11:2] == 10'h000) value = IDENTIFIER;
        else if (r_addr[11:2] == 10'h001)
            value = {HAS_ROUTES ? {8'(ROUTES_V6), 8'(ROUTES_V4)} : 16'd0, 8'(HOPS), 8'(DATA_W / 8)};
        else if (r_addr[11:2] == 10'h002) value = {24'd0, now.is_local_v6, now.is_local_v4, 3'd0, now.ecn};
        else if (r_addr[11:2] == 10'h003) value = 32'(now.packet_max);
        else if (r_addr[11:2] == 10'h004) value = {16'd0, now.mac[47:32]};
        else if (r_addr[11:2] == 10'h005) value = now.mac[31:0];
        else if (r_addr[11:7] == 5'b00001) value = event_count;
        else known = 1'b0;
    end
endmodule

`default_nettype wire
