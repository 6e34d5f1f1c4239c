// Registers of the GRE header remover on AXI4-Lite: rules, policy, counters. The map is hdl/regs.toml.
//
// An access that is not aligned to a word, of an address where nothing is, a write of less than a word or of a value that means
// nothing is answered with SLVERR and changes nothing. Rules cannot be read back. A rule is written with its `valid` bit clear,
// which is its last word, and then made valid: no packet meets half a rule.

`default_nettype none

module gre_regs
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
    localparam logic [1:0] OKAY = 2'b00;
    localparam logic [1:0] SLVERR = 2'b10;
    localparam logic [31:0] IDENTIFIER = 32'h4752_4531; // "GRE1"
    localparam int unsigned RULES = RULES_V4 + RULES_V6;
    localparam int unsigned RULE_W = RULES > 1 ? $clog2(RULES) : 1;
    localparam int unsigned OCTETS_W = 48;

    initial begin
        assert (RULES_V4 >= 1 && RULES_V4 <= 16 && RULES_V6 >= 1 && RULES_V6 <= 8);
    end

    // Write: address and data are taken together.
    logic        b_valid;
    logic [1:0]  b_resp;
    wire logic write = s_axil_awvalid && s_axil_wvalid && !b_valid;
    wire logic [11:0] w_addr = s_axil_awaddr;
    wire logic [31:0] w_data = s_axil_wdata;

    assign s_axil_awready = write;
    assign s_axil_wready = write;
    assign s_axil_bvalid = b_valid;
    assign s_axil_bresp = b_resp;

    wire logic sound = w_addr[1:0] == 2'b00 && s_axil_wstrb == 4'hf;
    wire logic at_unmatched = w_addr == 12'h008;
    wire logic at_policy = w_addr == 12'h00c && w_data[1:0] != VERDICT_STRIP && w_data[3:2] != VERDICT_STRIP;
    wire logic at_length = w_addr == 12'h010;
    // A rule of IPv4 has eight words, of which six are used, one of IPv6 32, of which 18.
    wire logic at_v4 = w_addr[11:9] == 3'b001 && {1'b0, w_addr[8:5]} < 5'(RULES_V4) && w_addr[4:2] < 3'd6;
    wire logic at_v6 = w_addr[11:10] == 2'b01 && {1'b0, w_addr[9:7]} < 4'(RULES_V6) && w_addr[6:2] < 5'd18;
    wire logic fits = sound && (at_unmatched || at_policy || at_length || at_v4 || at_v6);

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
            b_valid <= 1'b0;
            b_resp  <= OKAY;
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
            if (s_axil_bready) b_valid <= 1'b0;
            if (write) begin
                b_valid <= 1'b1;
                b_resp  <= fits ? OKAY : SLVERR;
                if (sound && at_unmatched) policy_now.unmatched <= w_condition.action;
                if (sound && at_policy) begin
                    policy_now.unreadable <= verdict_t'(w_data[1:0]);
                    policy_now.fragment   <= verdict_t'(w_data[3:2]);
                    policy_now.other_host <= w_data[4];
                end
                if (sound && at_length) policy_now.length_max <= w_data[COUNT_W-1:0];
                for (int unsigned at = 0; at < RULES_V4; at++) begin
                    if (sound && at_v4 && w_addr[8:5] == 4'(at)) begin
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
                    if (sound && at_v6 && w_addr[9:7] == 3'(at)) begin
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

    logic [11:0]               r_addr;
    wire logic [31:0]          event_count;
    wire logic [31:0]          rule_packets;
    wire logic [OCTETS_W-1:0]  rule_octets;
    wire logic [2:0]           counters_ready;
    assign ready = &counters_ready;

    gre_counters #(.COUNTERS(32), .WIDTH(32), .ADD_W(1)) events (
        .clk, .rst, .ready(counters_ready[0]),
        .add(counted), .index(code), .amount(1'b1),
        .read_index(r_addr[6:2]), .read_value(event_count)
    );
    gre_counters #(.COUNTERS(RULES), .WIDTH(32), .ADD_W(1)) packets (
        .clk, .rst, .ready(counters_ready[1]),
        .add(matched), .index(rule), .amount(1'b1),
        .read_index(r_addr[4+:RULE_W]), .read_value(rule_packets)
    );
    gre_counters #(.COUNTERS(RULES), .WIDTH(OCTETS_W), .ADD_W(COUNT_W)) bytes (
        .clk, .rst, .ready(counters_ready[2]),
        .add(matched), .index(rule), .amount(octets),
        .read_index(r_addr[4+:RULE_W]), .read_value(rule_octets)
    );

    // Read: the address, then the value.
    logic        r_pending;
    logic        r_valid;
    logic [1:0]  r_resp;
    logic [31:0] r_data;
    assign s_axil_arready = !r_pending && !r_valid;
    assign s_axil_rvalid = r_valid;
    assign s_axil_rresp = r_resp;
    assign s_axil_rdata = r_data;

    logic        known;
    logic [31:0] value;
    always_comb begin
        known = r_addr[1:0] == 2'b00;
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

    always_ff @(posedge clk) begin
        if (s_axil_arready) r_addr <= s_axil_araddr;
        if (r_pending) begin
            r_data <= known ? value : '0;
            r_resp <= known ? OKAY : SLVERR;
        end
        if (rst) begin
            r_pending <= 1'b0;
            r_valid   <= 1'b0;
        end else begin
            r_pending <= s_axil_arvalid && s_axil_arready;
            r_valid   <= r_pending || (r_valid && !s_axil_rready);
        end
    end
endmodule

`default_nettype wire
