// The session of each packet: a lookup in em_table and what it answered, in the order of the packets.
//
// A packet asks in the clock in which its first beat is in a stage of axis_window, seven stages before that of the decision. The
// answer comes six clocks later, and the packet moves a stage a clock at most: so at the decision the answer is there. At most eight
// packets can be between the two, and so many answers have room.

`default_nettype none

module gtpu_lookup #(
    parameter int unsigned KEY_W = 34,
    parameter int unsigned VAL_W = 128,
    parameter int unsigned IDX_W = 6,
    localparam int unsigned WAYS = 4,
    localparam int unsigned ID_W = IDX_W + $clog2(WAYS)
) (
    input  wire logic             clk,
    input  wire logic             rst,

    input  wire logic             asks,
    input  wire logic [KEY_W-1:0] key,
    input  wire logic [15:0]      octets,

    // The answer to the oldest question, until it is taken.
    output wire logic             hit,
    output wire logic [ID_W-1:0]  entry,
    output wire logic [VAL_W-1:0] value,
    input  wire logic             taken,

    input  wire logic [7:0]       awaddr,
    input  wire logic [31:0]      wdata,
    input  wire logic [3:0]       wstrb,
    input  wire logic             wvalid,
    output wire logic             wready,
    output wire logic [1:0]       bresp,
    output wire logic             bvalid,
    input  wire logic             bready,
    input  wire logic [7:0]       araddr,
    input  wire logic             arvalid,
    output wire logic             arready,
    output wire logic [31:0]      rdata,
    output wire logic [1:0]       rresp,
    output wire logic             rvalid,
    input  wire logic             rready
);
    localparam int unsigned PLACES = 8;
    localparam int unsigned PLACE_W = $clog2(PLACES);

    wire logic             res_valid;
    wire logic             res_hit;
    wire logic [ID_W-1:0]  res_id;
    wire logic [VAL_W-1:0] res_value;
    // Address and data of a write come together.
    wire logic             awready;
    wire logic unused_awready = &{1'b0, awready};

    em_table #(.PORTS(1), .KEY_W(KEY_W), .VAL_W(VAL_W), .WAYS(WAYS), .IDX_W(IDX_W), .HASH_REG(1'b1)) sessions (
        .clk, .rst,
        .lk_valid(asks), .lk_key(key), .lk_len(octets),
        .res_valid, .res_hit, .res_id, .res_value,
        .s_awvalid(wvalid), .s_awready(awready), .s_awaddr(awaddr),
        .s_wvalid(wvalid), .s_wready(wready), .s_wdata(wdata), .s_wstrb(wstrb),
        .s_bvalid(bvalid), .s_bready(bready), .s_bresp(bresp),
        .s_arvalid(arvalid), .s_arready(arready), .s_araddr(araddr),
        .s_rvalid(rvalid), .s_rready(rready), .s_rdata(rdata), .s_rresp(rresp)
    );

    logic [ID_W+VAL_W:0] answers[PLACES];
    logic [PLACE_W-1:0]  newest;
    logic [PLACE_W-1:0]  oldest;
    assign {hit, entry, value} = answers[oldest];

    always_ff @(posedge clk) begin
        if (res_valid) answers[newest] <= {res_hit, res_id, res_value};
        if (rst) begin
            newest <= '0;
            oldest <= '0;
        end else begin
            if (res_valid) newest <= newest + 1'b1;
            if (taken) oldest <= oldest + 1'b1;
        end
    end
endmodule

`default_nettype wire
