// Registers of the GRE header remover on AXI4-Lite: rules, policy, counters. The map is hdl/regs.toml.
//
// An access that is not aligned to a word, of an address where nothing is, a write of less than a word or of a value that means
// nothing is answered with SLVERR and changes nothing. Rules cannot be read back. A rule is written with its `valid` bit clear,
// which is its last word, and then made valid: no packet meets half a rule.

`default_nettype none

module gre_regs
    import net_pkg::*;
    import gre_pkg::*;
#(
    parameter int unsigned DATA_W = 256,
    parameter int unsigned RULES_V4 = 16,
    parameter int unsigned RULES_V6 = 4
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

    output wire policy_t                 policy,
    output wire rule_v4_t [RULES_V4-1:0] rules_v4,
    output wire rule_v6_t [RULES_V6-1:0] rules_v6,

    // Counters can take events.
    output wire logic               ready,
    // A frame has ended.
    input  wire logic               event_valid,
    input  wire event_t             event_code,
    input  wire logic               event_matched,
    input  wire logic [5:0]         event_rule,
    input  wire logic [COUNT_W-1:0] event_octets
);
    localparam logic [31:0] IDENTIFIER = 32'h4752_4531; // "GRE1"
    localparam int unsigned RULES = RULES_V4 + RULES_V6;
    localparam int unsigned RULE_W = RULES > 1 ? $clog2(RULES) : 1;
    localparam int unsigned OCTETS_W = 48;

    initial begin
        assert (RULES_V4 >= 1 && RULES_V4 <= 16 && RULES_V6 >= 1 && RULES_V6 <= 8);
    end

    wire logic        write;
    wire logic [11:0] w_addr;
    wire logic [31:0] w_data;
    wire logic        fits;
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

    wire logic at_unmatched = w_addr == 12'h008;
    wire logic at_policy = w_addr == 12'h00c && w_data[1:0] != VERDICT_STRIP && w_data[3:2] != VERDICT_STRIP;
    wire logic at_length = w_addr == 12'h010;
    // A rule of IPv4 has eight words, of which six are used, one of IPv6 32, of which 18.
    wire logic at_v4 = w_addr[11:9] == 3'b001 && {1'b0, w_addr[8:5]} < 5'(RULES_V4) && w_addr[4:2] < 3'd6;
    wire logic at_v6 = w_addr[11:10] == 2'b01 && {1'b0, w_addr[9:7]} < 4'(RULES_V6) && w_addr[6:2] < 5'd18;
    assign fits = at_unmatched || at_policy || at_length || at_v4 || at_v6;

    policy_t                 policy_now;
    rule_v4_t [RULES_V4-1:0] now_v4;
    rule_v6_t [RULES_V6-1:0] now_v6;
    assign policy = policy_now;
    assign rules_v4 = now_v4;
    assign rules_v6 = now_v6;

    // A field of three bits more than the type has must be zero: KEY_IS is the highest.
    wire condition_t w_condition = '{
        action: '{
            route: w_data[10], dscp_uniform: w_data[9], ttl_uniform: w_data[8], verdict: verdict_t'(w_data[7:6])
        },
        ethernet: w_data[5],
        ipv6: w_data[4],
        ipv4: w_data[3],
        key: key_match_t'(w_data[2:1]),
        valid: w_data[0]
    };

    always_ff @(posedge clk) begin
        if (rst) begin
            // Everything passes until it is told otherwise; frames as long as there are.
            policy_now <= '{
                length_max: '1,
                other_host: 1'b0,
                fragment: VERDICT_HOST,
                unreadable: VERDICT_DROP,
                unmatched: '{route: 1'b0, dscp_uniform: 1'b0, ttl_uniform: 1'b0, verdict: VERDICT_PASS}
            };
            for (int unsigned at = 0; at < RULES_V4; at++) now_v4[at].condition.valid <= 1'b0;
            for (int unsigned at = 0; at < RULES_V6; at++) now_v6[at].condition.valid <= 1'b0;
        end else begin
            if (write) begin
                if (at_unmatched) policy_now.unmatched <= w_condition.action;
                if (at_policy) begin
                    policy_now.unreadable <= verdict_t'(w_data[1:0]);
                    policy_now.fragment   <= verdict_t'(w_data[3:2]);
                    policy_now.other_host <= w_data[4];
                end
                if (at_length) policy_now.length_max <= w_data[COUNT_W-1:0];
                for (int unsigned at = 0; at < RULES_V4; at++) begin
                    if (at_v4 && w_addr[8:5] == 4'(at)) begin
                        unique case (w_addr[4:2])
                            3'd0: now_v4[at].source <= w_data;
                            3'd1: now_v4[at].source_mask <= w_data;
                            3'd2: now_v4[at].destination <= w_data;
                            3'd3: now_v4[at].destination_mask <= w_data;
                            3'd4: now_v4[at].key <= w_data;
                            default: now_v4[at].condition <= w_condition;
                        endcase
                    end
                end
                for (int unsigned at = 0; at < RULES_V6; at++) begin
                    if (at_v6 && w_addr[9:7] == 3'(at)) begin
                        // Most significant word first.
                        for (int unsigned word = 0; word < 4; word++) begin
                            if (w_addr[6:2] == 5'(word)) now_v6[at].source[32*(3-word)+:32] <= w_data;
                            if (w_addr[6:2] == 5'(word + 4)) now_v6[at].source_mask[32*(3-word)+:32] <= w_data;
                            if (w_addr[6:2] == 5'(word + 8)) now_v6[at].destination[32*(3-word)+:32] <= w_data;
                            if (w_addr[6:2] == 5'(word + 12)) now_v6[at].destination_mask[32*(3-word)+:32] <= w_data;
                        end
                        if (w_addr[6:2] == 5'd16) now_v6[at].key <= w_data;
                        if (w_addr[6:2] == 5'd17) now_v6[at].condition <= w_condition;
                    end
                end
            end
        end
    end

    // Counters: one event a frame, registered.
    logic               counted;
    event_t             code;
    logic               matched;
    logic [RULE_W-1:0]  rule;
    logic [COUNT_W-1:0] octets;
    always_ff @(posedge clk) begin
        counted <= event_valid && !rst;
        code    <= event_code;
        matched <= event_valid && event_matched && !rst;
        rule    <= event_rule[RULE_W-1:0];
        octets  <= event_octets;
    end
    wire logic unused_rule_bits = &{1'b0, event_rule};

    wire logic [31:0]          event_count;
    wire logic [31:0]          rule_packets;
    wire logic [OCTETS_W-1:0]  rule_octets;
    wire logic [2:0]           counters_ready;
    // Registered: it is in the way of every beat.
    logic all_ready;
    always_ff @(posedge clk) all_ready <= &counters_ready && !rst;
    assign ready = all_ready;

    event_counters #(.COUNTERS(32), .WIDTH(32), .ADD_W(1)) events (
        .clk, .rst, .ready(counters_ready[0]),
        .add(counted), .index(code), .amount(1'b1),
        .read_index(r_addr[6:2]), .read_value(event_count)
    );
    event_counters #(.COUNTERS(RULES), .WIDTH(32), .ADD_W(1)) packets (
        .clk, .rst, .ready(counters_ready[1]),
        .add(matched), .index(rule), .amount(1'b1),
        .read_index(r_addr[4+:RULE_W]), .read_value(rule_packets)
    );
    event_counters #(.COUNTERS(RULES), .WIDTH(OCTETS_W), .ADD_W(COUNT_W)) bytes (
        .clk, .rst, .ready(counters_ready[2]),
        .add(matched), .index(rule), .amount(octets),
        .read_index(r_addr[4+:RULE_W]), .read_value(rule_octets)
    );

    always_comb begin
        known = 1'b1;
        value = '0;
        if (r_addr[11:2] == 10'h000) value = IDENTIFIER;
        else if (r_addr[11:2] == 10'h001) value = {8'd0, 8'(RULES_V6), 8'(RULES_V4), 8'(DATA_W / 8)};
        else if (r_addr[11:2] == 10'h002) value = {21'd0, policy_now.unmatched, 6'd0};
        else if (r_addr[11:2] == 10'h003)
            value = {27'd0, policy_now.other_host, policy_now.fragment, policy_now.unreadable};
        else if (r_addr[11:2] == 10'h004) value = 32'(policy_now.length_max);
        else if (r_addr[11:7] == 5'b00001) value = event_count;
        else if (r_addr[11:10] == 2'b10 && {1'b0, r_addr[9:4]} < 7'(RULES)) begin
            unique case (r_addr[3:2])
                2'd0: value = rule_packets;
                2'd1: value = rule_octets[31:0];
                2'd2: value = {16'd0, rule_octets[47:32]};
                default: known = 1'b0;
            endcase
        end else known = 1'b0;
    end
endmodule

`default_nettype wire
