// Frames of a port that N3 and N6 share: UDP to an own address and port 2152, and each fragment of UDP to one, goes out of tunnels, all
// else into them. Each core judges what it gets, and leaves to the host what is not for it.
//
//   s_axis ──▶ axis_window ──▶ stage 0 ──▶ m_axis, one of two
//                 ╰─▶ outer headers ──┘
//
// The first beat leaves DEPTH clocks after it came in, 3 at 256 bits, and one beat passes each clock.

`default_nettype none

module upf_steer
    import net_pkg::*;
    import ip_pkg::*;
    import gtpu_pkg::*;
#(
    parameter int unsigned DATA_W = 256
) (
    input  wire logic                clk,
    input  wire logic                rst,

    // Of gtpu_decap.
    input  wire settings_t           settings,

    input  wire logic [DATA_W-1:0]   s_axis_tdata,
    input  wire logic [DATA_W/8-1:0] s_axis_tkeep,
    input  wire logic                s_axis_tlast,
    input  wire logic                s_axis_tuser,
    input  wire logic                s_axis_tvalid,
    output wire logic                s_axis_tready,

    output wire logic [DATA_W-1:0]   m_axis_tdata,
    output wire logic [DATA_W/8-1:0] m_axis_tkeep,
    output wire logic                m_axis_tlast,
    output wire logic                m_axis_tuser,
    // Out of tunnels, into tunnels.
    output wire logic [1:0]          m_axis_tvalid,
    input  wire logic [1:0]          m_axis_tready
);
    localparam int unsigned OCTETS = DATA_W / 8;
    // Beats that hold Ethernet, ten words of IP and the ports of UDP.
    localparam int unsigned READ_BEATS = (14 + 40 + 4 + OCTETS - 1) / OCTETS;
    localparam int unsigned DEPTH = READ_BEATS + 1;

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
    wire logic unused_stages = &{1'b0, valid, load, keep, first, last, user, count};
    axis_window #(.DATA_W(DATA_W), .DEPTH(DEPTH), .COUNT_W(COUNT_W)) stages (
        .clk, .rst,
        .s_axis_tdata, .s_axis_tkeep, .s_axis_tlast, .s_axis_tuser, .s_axis_tvalid, .s_axis_tready,
        .head_valid, .head_taken, .valid, .load, .data, .keep, .first, .last, .user, .count
    );

    // A frame that is cut off in its headers may go either way: both cores drop it.
    wire logic [READ_BEATS*OCTETS-1:0][7:0] front = data[DEPTH-1:1];
    wire logic [IP_WORDS:0][31:0] words;
    axis_words #(.OCTETS(READ_BEATS * OCTETS), .WORDS(IP_WORDS + 1)) front_words (.octets(front), .words);
    wire logic [47:0] frame_dst = {front[0], front[1], front[2], front[3], front[4], front[5]};
    wire logic [15:0] ethertype = {front[12], front[13]};
    wire ip_t outer = ip_read(words[IP_WORDS-1:0], '1);
    wire logic [31:0] udp_ports = words[outer.words];
    wire logic is_local;
    wire logic [ENDPOINT_W-1:0] endpoint;
    assign {is_local, endpoint} = endpoint_of(settings.is_local_v4, settings.is_local_v6, settings.local_v4,
        settings.local_v6, outer.is_v6, outer.destination);
    wire logic unused_outer = &{1'b0, outer, endpoint, udp_ports[31:16], settings};
    wire logic is_tunnel = frame_dst == settings.mac && ethertype == (outer.is_v6 ? TYPE_IPV6 : TYPE_IPV4) &&
        !outer.malformed && !outer.deep && outer.protocol == UDP && is_local &&
        (outer.is_part || udp_ports[15:0] == 16'd2152);

    logic goes_in;
    always_ff @(posedge clk) begin
        if (load[0] && first[1]) goes_in <= !is_tunnel;
    end

    assign m_axis_tdata = data[0];
    assign m_axis_tkeep = keep[0];
    assign m_axis_tlast = last[0];
    assign m_axis_tuser = user[0];
    assign m_axis_tvalid = {head_valid && goes_in, head_valid && !goes_in};
    assign head_taken = |(m_axis_tvalid & m_axis_tready);
endmodule

`default_nettype wire
