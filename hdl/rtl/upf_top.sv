// A user plane: both GTP-U cores, their tables, usage of their sessions, one stream to the host and one AXI4-Lite.
//
//   s_n3_axis ─▶ axis_skid ─▶ gtpu_decap ────────────────────────────────▶ m_n6_axis
//                              │      ╰─▶ axis_frame_fifo ─┐
//                            event ─▶ session_usage        ├─▶ axis_merge ─▶ host_axis   tuser says whose it is and why
//                            event ─▶ session_usage        │
//                              │      ╭─▶ axis_frame_fifo ─┘
//   s_n6_axis ─▶ axis_skid ─▶ gtpu_encap ────────────────────────────────▶ m_n3_axis
//   s_axil ────▶ axil_split ─▶ gtpu_decap, gtpu_encap, session_usage of each, upf_regs
//
// A port says the direction of its frames. Where N3 and N6 are one port, ONE_PORT, upf_steer tells it of each frame, and the frames of
// both cores leave by that port, merged:
//
//   s_n3_axis ─▶ axis_skid ─▶ upf_steer ─┬─▶ gtpu_decap ─┬─▶ axis_merge ─▶ m_n3_axis
//                                        ╰─▶ gtpu_encap ─╯
//
// A host that does not take its frames stops nobody: a frame for which its buffer has no room is dropped whole, and counted.
//
// tkeep is contiguous from octet 0 and full but in the last beat. s_*_axis_tuser with tlast marks a frame with an error; m_*_axis_tuser
// with tlast one that is to be dropped.

`default_nettype none

module upf_top
    import net_pkg::*;
    import gtpu_pkg::*;
#(
    parameter int unsigned DATA_W = 256,
    // N3 and N6 are one port, n3; n6 is not used.
    parameter bit          ONE_PORT = 1'b0,
    // log2 of the buckets of a way of each table, which has four.
    parameter int unsigned IDX_W = 6,
    // log2 of the beats that the host's buffer of each direction holds.
    parameter int unsigned HOST_BEATS_W = 9,
    // Clocks of a tick of the times of sessions.
    parameter int unsigned TICK_CLOCKS = 322_000,
    localparam int unsigned ID_W = IDX_W + 2
) (
    input  wire logic                clk,
    input  wire logic                rst,

    input  wire logic [DATA_W-1:0]   s_n3_axis_tdata,
    input  wire logic [DATA_W/8-1:0] s_n3_axis_tkeep,
    input  wire logic                s_n3_axis_tlast,
    input  wire logic                s_n3_axis_tuser,
    input  wire logic                s_n3_axis_tvalid,
    output wire logic                s_n3_axis_tready,

    output wire logic [DATA_W-1:0]   m_n3_axis_tdata,
    output wire logic [DATA_W/8-1:0] m_n3_axis_tkeep,
    output wire logic                m_n3_axis_tlast,
    output wire logic                m_n3_axis_tuser,
    output wire logic                m_n3_axis_tvalid,
    input  wire logic                m_n3_axis_tready,

    input  wire logic [DATA_W-1:0]   s_n6_axis_tdata,
    input  wire logic [DATA_W/8-1:0] s_n6_axis_tkeep,
    input  wire logic                s_n6_axis_tlast,
    input  wire logic                s_n6_axis_tuser,
    input  wire logic                s_n6_axis_tvalid,
    output wire logic                s_n6_axis_tready,

    output wire logic [DATA_W-1:0]   m_n6_axis_tdata,
    output wire logic [DATA_W/8-1:0] m_n6_axis_tkeep,
    output wire logic                m_n6_axis_tlast,
    output wire logic                m_n6_axis_tuser,
    output wire logic                m_n6_axis_tvalid,
    input  wire logic                m_n6_axis_tready,

    output wire logic [DATA_W-1:0]   host_axis_tdata,
    output wire logic [DATA_W/8-1:0] host_axis_tkeep,
    output wire logic                host_axis_tlast,
    // The core that left it (0 is gtpu_decap), whether the frame had an error (with tlast), and an event_t.
    output wire logic [6:0]          host_axis_tuser,
    output wire logic                host_axis_tvalid,
    input  wire logic                host_axis_tready,

    // There are idle sessions to be read.
    output wire logic                irq,

    input  wire logic [14:0]         s_axil_awaddr,
    input  wire logic                s_axil_awvalid,
    output wire logic                s_axil_awready,
    input  wire logic [31:0]         s_axil_wdata,
    input  wire logic [3:0]          s_axil_wstrb,
    input  wire logic                s_axil_wvalid,
    output wire logic                s_axil_wready,
    output wire logic [1:0]          s_axil_bresp,
    output wire logic                s_axil_bvalid,
    input  wire logic                s_axil_bready,
    input  wire logic [14:0]         s_axil_araddr,
    input  wire logic                s_axil_arvalid,
    output wire logic                s_axil_arready,
    output wire logic [31:0]         s_axil_rdata,
    output wire logic [1:0]          s_axil_rresp,
    output wire logic                s_axil_rvalid,
    input  wire logic                s_axil_rready
);
    localparam int unsigned KEEP_W = DATA_W / 8;
    localparam int unsigned HOST_USER_W = 6;
    localparam int unsigned DECAP = 0;
    localparam int unsigned ENCAP = 1;

    // By core: what goes in, what leaves, what is the host's.
    wire logic [1:0][DATA_W-1:0]      in_tdata;
    wire logic [1:0][KEEP_W-1:0]      in_tkeep;
    wire logic [1:0]                  in_tlast;
    wire logic [1:0]                  in_tuser;
    wire logic [1:0]                  in_tvalid;
    wire logic [1:0]                  in_tready;
    wire logic [1:0][DATA_W-1:0]      out_tdata;
    wire logic [1:0][KEEP_W-1:0]      out_tkeep;
    wire logic [1:0]                  out_tlast;
    wire logic [1:0]                  out_tuser;
    wire logic [1:0]                  out_tvalid;
    wire logic [1:0]                  out_tready;
    wire logic [1:0][DATA_W-1:0]      left_tdata;
    wire logic [1:0][KEEP_W-1:0]      left_tkeep;
    wire logic [1:0]                  left_tlast;
    wire logic [1:0][HOST_USER_W-1:0] left_tuser;
    wire logic [1:0]                  left_tvalid;

    wire logic [1:0]              event_valid;
    wire event_t [1:0]            event_code;
    wire logic [1:0][ID_W-1:0]    event_entry;
    wire logic [1:0][COUNT_W-1:0] event_octets;
    wire settings_t               settings;

    // By slave: both cores, usage of their sessions, the registers of this module and all that nobody has.
    localparam int unsigned SLAVES = 5;
    localparam int unsigned USAGE = 2;
    localparam int unsigned OWN = 4;
    wire logic [SLAVES-1:0]       bus_wvalid;
    wire logic [SLAVES-1:0]       bus_wready;
    wire logic [SLAVES-1:0][1:0]  bus_bresp;
    wire logic [SLAVES-1:0]       bus_bvalid;
    wire logic                    bus_bready;
    wire logic [SLAVES-1:0]       bus_arvalid;
    wire logic [SLAVES-1:0]       bus_arready;
    wire logic [SLAVES-1:0][31:0] bus_rdata;
    wire logic [SLAVES-1:0][1:0]  bus_rresp;
    wire logic [SLAVES-1:0]       bus_rvalid;
    wire logic                    bus_rready;
    // Address and data of a write are taken together.
    wire logic [SLAVES-1:0]       bus_awready;
    wire logic unused_awready = &{1'b0, bus_awready};
    function automatic logic [SLAVES-1:0] slave_of(input logic [2:0] window);
        slave_of = '0;
        slave_of[window < 3'(OWN) ? window : 3'(OWN)] = 1'b1;
    endfunction
    axil_split #(.SLAVES(SLAVES)) split (
        .clk, .rst,
        .s_awvalid(s_axil_awvalid), .s_awready(s_axil_awready), .s_wvalid(s_axil_wvalid), .s_wready(s_axil_wready),
        .s_bresp(s_axil_bresp), .s_bvalid(s_axil_bvalid), .s_bready(s_axil_bready),
        .s_arvalid(s_axil_arvalid), .s_arready(s_axil_arready),
        .s_rdata(s_axil_rdata), .s_rresp(s_axil_rresp), .s_rvalid(s_axil_rvalid), .s_rready(s_axil_rready),
        .write_to(slave_of(s_axil_awaddr[14:12])), .read_to(slave_of(s_axil_araddr[14:12])),
        .m_wvalid(bus_wvalid), .m_wready(bus_wready), .m_bresp(bus_bresp), .m_bvalid(bus_bvalid), .m_bready(bus_bready),
        .m_arvalid(bus_arvalid), .m_arready(bus_arready), .m_rdata(bus_rdata), .m_rresp(bus_rresp),
        .m_rvalid(bus_rvalid), .m_rready(bus_rready)
    );

    // What comes in, behind a register for its ready wire.
    wire logic [DATA_W-1:0] n3_tdata;
    wire logic [KEEP_W-1:0] n3_tkeep;
    wire logic              n3_tlast;
    wire logic              n3_tuser;
    wire logic              n3_tvalid;
    wire logic              n3_tready;
    axis_skid #(.DATA_W(DATA_W)) n3 (
        .clk, .rst,
        .s_axis_tdata(s_n3_axis_tdata), .s_axis_tkeep(s_n3_axis_tkeep), .s_axis_tlast(s_n3_axis_tlast),
        .s_axis_tuser(s_n3_axis_tuser), .s_axis_tvalid(s_n3_axis_tvalid), .s_axis_tready(s_n3_axis_tready),
        .m_axis_tdata(n3_tdata), .m_axis_tkeep(n3_tkeep), .m_axis_tlast(n3_tlast), .m_axis_tuser(n3_tuser),
        .m_axis_tvalid(n3_tvalid), .m_axis_tready(n3_tready)
    );

    if (ONE_PORT) begin : g_one_port
        wire logic [DATA_W-1:0] tdata;
        wire logic [KEEP_W-1:0] tkeep;
        wire logic              tlast;
        wire logic              tuser;
        upf_steer #(.DATA_W(DATA_W)) steer (
            .clk, .rst, .settings,
            .s_axis_tdata(n3_tdata), .s_axis_tkeep(n3_tkeep), .s_axis_tlast(n3_tlast), .s_axis_tuser(n3_tuser),
            .s_axis_tvalid(n3_tvalid), .s_axis_tready(n3_tready),
            .m_axis_tdata(tdata), .m_axis_tkeep(tkeep), .m_axis_tlast(tlast), .m_axis_tuser(tuser),
            .m_axis_tvalid(in_tvalid), .m_axis_tready(in_tready)
        );
        assign in_tdata = {2{tdata}};
        assign in_tkeep = {2{tkeep}};
        assign in_tlast = {2{tlast}};
        assign in_tuser = {2{tuser}};

        wire logic source;
        axis_merge #(.DATA_W(DATA_W), .SOURCES(2)) outs (
            .clk, .rst,
            .s_axis_tdata(out_tdata), .s_axis_tkeep(out_tkeep), .s_axis_tlast(out_tlast), .s_axis_tuser(out_tuser),
            .s_axis_tvalid(out_tvalid), .s_axis_tready(out_tready),
            .m_axis_tdata(m_n3_axis_tdata), .m_axis_tkeep(m_n3_axis_tkeep), .m_axis_tlast(m_n3_axis_tlast),
            .m_axis_tuser(m_n3_axis_tuser), .m_axis_tvalid(m_n3_axis_tvalid), .m_axis_tready(m_n3_axis_tready), .source
        );
        wire logic unused_n6 = &{1'b0, source, s_n6_axis_tdata, s_n6_axis_tkeep, s_n6_axis_tlast, s_n6_axis_tuser,
            s_n6_axis_tvalid, m_n6_axis_tready};
        assign s_n6_axis_tready = 1'b0;
        assign m_n6_axis_tdata = '0;
        assign m_n6_axis_tkeep = '0;
        assign m_n6_axis_tlast = 1'b0;
        assign m_n6_axis_tuser = 1'b0;
        assign m_n6_axis_tvalid = 1'b0;
    end else begin : g_two_ports
        wire logic unused_settings = &{1'b0, settings};
        assign in_tdata[DECAP] = n3_tdata;
        assign in_tkeep[DECAP] = n3_tkeep;
        assign in_tlast[DECAP] = n3_tlast;
        assign in_tuser[DECAP] = n3_tuser;
        assign in_tvalid[DECAP] = n3_tvalid;
        assign n3_tready = in_tready[DECAP];
        axis_skid #(.DATA_W(DATA_W)) n6 (
            .clk, .rst,
            .s_axis_tdata(s_n6_axis_tdata), .s_axis_tkeep(s_n6_axis_tkeep), .s_axis_tlast(s_n6_axis_tlast),
            .s_axis_tuser(s_n6_axis_tuser), .s_axis_tvalid(s_n6_axis_tvalid), .s_axis_tready(s_n6_axis_tready),
            .m_axis_tdata(in_tdata[ENCAP]), .m_axis_tkeep(in_tkeep[ENCAP]), .m_axis_tlast(in_tlast[ENCAP]),
            .m_axis_tuser(in_tuser[ENCAP]), .m_axis_tvalid(in_tvalid[ENCAP]), .m_axis_tready(in_tready[ENCAP])
        );
        assign m_n6_axis_tdata = out_tdata[DECAP];
        assign m_n6_axis_tkeep = out_tkeep[DECAP];
        assign m_n6_axis_tlast = out_tlast[DECAP];
        assign m_n6_axis_tuser = out_tuser[DECAP];
        assign m_n6_axis_tvalid = out_tvalid[DECAP];
        assign out_tready[DECAP] = m_n6_axis_tready;
        assign m_n3_axis_tdata = out_tdata[ENCAP];
        assign m_n3_axis_tkeep = out_tkeep[ENCAP];
        assign m_n3_axis_tlast = out_tlast[ENCAP];
        assign m_n3_axis_tuser = out_tuser[ENCAP];
        assign m_n3_axis_tvalid = out_tvalid[ENCAP];
        assign out_tready[ENCAP] = m_n3_axis_tready;
    end

    gtpu_decap #(.DATA_W(DATA_W), .IDX_W(IDX_W)) decap (
        .clk, .rst,
        .s_axis_tdata(in_tdata[DECAP]), .s_axis_tkeep(in_tkeep[DECAP]), .s_axis_tlast(in_tlast[DECAP]),
        .s_axis_tuser(in_tuser[DECAP]), .s_axis_tvalid(in_tvalid[DECAP]), .s_axis_tready(in_tready[DECAP]),
        .m_axis_tdata(out_tdata[DECAP]), .m_axis_tkeep(out_tkeep[DECAP]), .m_axis_tlast(out_tlast[DECAP]),
        .m_axis_tuser(out_tuser[DECAP]), .m_axis_tvalid(out_tvalid[DECAP]), .m_axis_tready(out_tready[DECAP]),
        .host_axis_tdata(left_tdata[DECAP]), .host_axis_tkeep(left_tkeep[DECAP]), .host_axis_tlast(left_tlast[DECAP]),
        .host_axis_tuser(left_tuser[DECAP]), .host_axis_tvalid(left_tvalid[DECAP]), .host_axis_tready(1'b1),
        .event_valid(event_valid[DECAP]), .event_code(event_code[DECAP]), .event_entry(event_entry[DECAP]),
        .event_octets(event_octets[DECAP]), .settings,
        .s_axil_awaddr(s_axil_awaddr[11:0]), .s_axil_awvalid(bus_wvalid[DECAP]), .s_axil_awready(bus_awready[DECAP]),
        .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid(bus_wvalid[DECAP]), .s_axil_wready(bus_wready[DECAP]),
        .s_axil_bresp(bus_bresp[DECAP]), .s_axil_bvalid(bus_bvalid[DECAP]), .s_axil_bready(bus_bready),
        .s_axil_araddr(s_axil_araddr[11:0]), .s_axil_arvalid(bus_arvalid[DECAP]), .s_axil_arready(bus_arready[DECAP]),
        .s_axil_rdata(bus_rdata[DECAP]), .s_axil_rresp(bus_rresp[DECAP]), .s_axil_rvalid(bus_rvalid[DECAP]),
        .s_axil_rready(bus_rready)
    );
    gtpu_encap #(.DATA_W(DATA_W), .IDX_W(IDX_W)) encap (
        .clk, .rst,
        .s_axis_tdata(in_tdata[ENCAP]), .s_axis_tkeep(in_tkeep[ENCAP]), .s_axis_tlast(in_tlast[ENCAP]),
        .s_axis_tuser(in_tuser[ENCAP]), .s_axis_tvalid(in_tvalid[ENCAP]), .s_axis_tready(in_tready[ENCAP]),
        .m_axis_tdata(out_tdata[ENCAP]), .m_axis_tkeep(out_tkeep[ENCAP]), .m_axis_tlast(out_tlast[ENCAP]),
        .m_axis_tuser(out_tuser[ENCAP]), .m_axis_tvalid(out_tvalid[ENCAP]), .m_axis_tready(out_tready[ENCAP]),
        .host_axis_tdata(left_tdata[ENCAP]), .host_axis_tkeep(left_tkeep[ENCAP]), .host_axis_tlast(left_tlast[ENCAP]),
        .host_axis_tuser(left_tuser[ENCAP]), .host_axis_tvalid(left_tvalid[ENCAP]), .host_axis_tready(1'b1),
        .event_valid(event_valid[ENCAP]), .event_code(event_code[ENCAP]), .event_entry(event_entry[ENCAP]),
        .event_octets(event_octets[ENCAP]),
        .s_axil_awaddr(s_axil_awaddr[11:0]), .s_axil_awvalid(bus_wvalid[ENCAP]), .s_axil_awready(bus_awready[ENCAP]),
        .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid(bus_wvalid[ENCAP]), .s_axil_wready(bus_wready[ENCAP]),
        .s_axil_bresp(bus_bresp[ENCAP]), .s_axil_bvalid(bus_bvalid[ENCAP]), .s_axil_bready(bus_bready),
        .s_axil_araddr(s_axil_araddr[11:0]), .s_axil_arvalid(bus_arvalid[ENCAP]), .s_axil_arready(bus_arready[ENCAP]),
        .s_axil_rdata(bus_rdata[ENCAP]), .s_axil_rresp(bus_rresp[ENCAP]), .s_axil_rvalid(bus_rvalid[ENCAP]),
        .s_axil_rready(bus_rready)
    );

    // Usage, and the host's buffer, of each direction.
    wire logic [1:0]                  is_idle;
    wire logic [1:0]                  host_taken;
    wire logic [1:0]                  host_dropped;
    wire logic [1:0][DATA_W-1:0]      kept_tdata;
    wire logic [1:0][KEEP_W-1:0]      kept_tkeep;
    wire logic [1:0]                  kept_tlast;
    wire logic [1:0][HOST_USER_W-1:0] kept_tuser;
    wire logic [1:0]                  kept_tvalid;
    wire logic [1:0]                  kept_tready;
    assign irq = |is_idle;
    for (genvar at = 0; at < 2; at++) begin : g_direction
        session_usage #(.ID_W(ID_W), .LEN_W(COUNT_W), .TICK_CLOCKS(TICK_CLOCKS)) usage (
            .clk, .rst,
            .packet_valid(event_valid[at] && event_code[at] == FORWARDED), .packet_entry(event_entry[at]),
            .packet_octets(event_octets[at]), .irq(is_idle[at]),
            .s_axil_awaddr(s_axil_awaddr[11:0]), .s_axil_awvalid(bus_wvalid[USAGE+at]), .s_axil_awready(bus_awready[USAGE+at]),
            .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid(bus_wvalid[USAGE+at]), .s_axil_wready(bus_wready[USAGE+at]),
            .s_axil_bresp(bus_bresp[USAGE+at]), .s_axil_bvalid(bus_bvalid[USAGE+at]), .s_axil_bready(bus_bready),
            .s_axil_araddr(s_axil_araddr[11:0]), .s_axil_arvalid(bus_arvalid[USAGE+at]),
            .s_axil_arready(bus_arready[USAGE+at]), .s_axil_rdata(bus_rdata[USAGE+at]), .s_axil_rresp(bus_rresp[USAGE+at]),
            .s_axil_rvalid(bus_rvalid[USAGE+at]), .s_axil_rready(bus_rready)
        );
        axis_frame_fifo #(.DATA_W(DATA_W), .USER_W(HOST_USER_W), .BEATS_W(HOST_BEATS_W)) buffer (
            .clk, .rst,
            .s_axis_tdata(left_tdata[at]), .s_axis_tkeep(left_tkeep[at]), .s_axis_tlast(left_tlast[at]),
            .s_axis_tuser(left_tuser[at]), .s_axis_tvalid(left_tvalid[at]),
            .m_axis_tdata(kept_tdata[at]), .m_axis_tkeep(kept_tkeep[at]), .m_axis_tlast(kept_tlast[at]),
            .m_axis_tuser(kept_tuser[at]), .m_axis_tvalid(kept_tvalid[at]), .m_axis_tready(kept_tready[at]),
            .frame_taken(host_taken[at]), .frame_dropped(host_dropped[at])
        );
    end

    wire logic [HOST_USER_W-1:0] host_why;
    wire logic                   host_core;
    axis_merge #(.DATA_W(DATA_W), .USER_W(HOST_USER_W), .SOURCES(2)) hosts (
        .clk, .rst,
        .s_axis_tdata(kept_tdata), .s_axis_tkeep(kept_tkeep), .s_axis_tlast(kept_tlast), .s_axis_tuser(kept_tuser),
        .s_axis_tvalid(kept_tvalid), .s_axis_tready(kept_tready),
        .m_axis_tdata(host_axis_tdata), .m_axis_tkeep(host_axis_tkeep), .m_axis_tlast(host_axis_tlast),
        .m_axis_tuser(host_why), .m_axis_tvalid(host_axis_tvalid), .m_axis_tready(host_axis_tready), .source(host_core)
    );
    assign host_axis_tuser = {host_core, host_why};

    upf_regs #(.DATA_W(DATA_W), .ONE_PORT(ONE_PORT), .ID_W(ID_W), .HOST_BEATS_W(HOST_BEATS_W)) regs (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid(bus_wvalid[OWN]), .s_axil_awready(bus_awready[OWN]),
        .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid(bus_wvalid[OWN]), .s_axil_wready(bus_wready[OWN]),
        .s_axil_bresp(bus_bresp[OWN]), .s_axil_bvalid(bus_bvalid[OWN]), .s_axil_bready(bus_bready),
        .s_axil_araddr, .s_axil_arvalid(bus_arvalid[OWN]), .s_axil_arready(bus_arready[OWN]),
        .s_axil_rdata(bus_rdata[OWN]), .s_axil_rresp(bus_rresp[OWN]), .s_axil_rvalid(bus_rvalid[OWN]),
        .s_axil_rready(bus_rready),
        .is_idle, .host_taken, .host_dropped
    );
endmodule

`default_nettype wire
