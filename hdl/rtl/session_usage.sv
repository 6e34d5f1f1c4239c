// What sessions carry, and which are idle: packets, octets and the time of the last packet of each entry of a session table.
//
//   event_* of a core ──▶ em_counters: packets, octets
//                    ╰──▶ last: time ──scan, an entry a clock──▶ idle for timeout? ──▶ fifo ──▶ idle register, irq
//   s_axil ──▶ begin, end, select ─▶ snapshot of one entry
//
// A session that had no packet for `timeout` ticks is told once, and again only after a further packet: the user plane inactivity
// timer of TS 29.244 8.2.83. A session begins before the core can find it, and ends after it cannot any more.
//
// A packet may come in each clock. `begin` waits for a clock without one.

`default_nettype none

module session_usage #(
    // log2 of the entries of the table.
    parameter int unsigned ID_W        = 8,
    // Bits of a packet's length.
    parameter int unsigned LEN_W       = 17,
    // Clocks of a tick.
    parameter int unsigned TICK_CLOCKS = 322_000,
    localparam int unsigned TIME_W     = 24
) (
    input  wire logic             clk,
    input  wire logic             rst,

    // A packet of an entry was forwarded.
    input  wire logic             packet_valid,
    input  wire logic [ID_W-1:0]  packet_entry,
    input  wire logic [LEN_W-1:0] packet_octets,

    // There are entries in the idle register.
    output wire logic             irq,

    input  wire logic [11:0]      s_axil_awaddr,
    input  wire logic             s_axil_awvalid,
    output wire logic             s_axil_awready,
    input  wire logic [31:0]      s_axil_wdata,
    input  wire logic [3:0]       s_axil_wstrb,
    input  wire logic             s_axil_wvalid,
    output wire logic             s_axil_wready,
    output wire logic [1:0]       s_axil_bresp,
    output wire logic             s_axil_bvalid,
    input  wire logic             s_axil_bready,
    input  wire logic [11:0]      s_axil_araddr,
    input  wire logic             s_axil_arvalid,
    output wire logic             s_axil_arready,
    output wire logic [31:0]      s_axil_rdata,
    output wire logic [1:0]       s_axil_rresp,
    output wire logic             s_axil_rvalid,
    input  wire logic             s_axil_rready
);
    localparam logic [31:0] IDENTIFIER = 32'h5553_4731;  // USG1
    localparam int unsigned ENTRIES = 2 ** ID_W;
    localparam int unsigned PKT_W = 40;
    localparam int unsigned BYTE_W = 48;
    localparam int unsigned FIFO_W = 4;

    localparam logic [11:0] AT_IDENTIFIER = 12'h000;
    localparam logic [11:0] AT_PARAMETERS = 12'h004;
    localparam logic [11:0] AT_TIMEOUT = 12'h008;
    localparam logic [11:0] AT_NOW = 12'h00c;
    localparam logic [11:0] AT_BEGIN = 12'h010;
    localparam logic [11:0] AT_END = 12'h014;
    localparam logic [11:0] AT_SELECT = 12'h018;
    localparam logic [11:0] AT_IDLE = 12'h01c;
    localparam logic [11:0] AT_PACKETS = 12'h020;
    localparam logic [11:0] AT_OCTETS = 12'h028;
    localparam logic [11:0] AT_LAST = 12'h030;
    localparam logic [11:0] AT_FLAGS = 12'h034;

    wire logic        write;
    wire logic [11:0] write_addr;
    wire logic [31:0] write_data;
    wire logic        write_fits;
    wire logic [11:0] read_addr;
    logic [31:0]      read_value;
    logic             read_known;

    axil_slave #(.ADDR_W(12)) slave (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid, .s_axil_wready,
        .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid, .s_axil_arready, .s_axil_rdata,
        .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
        .write, .write_addr, .write_data, .write_fits, .read_addr, .read_value, .read_known
    );

    // Time.
    logic [TIME_W-1:0] now;
    logic [$clog2(TICK_CLOCKS)-1:0] clocks;
    wire logic tick = clocks == $bits(clocks)'(TICK_CLOCKS - 1);
    always_ff @(posedge clk) begin
        clocks <= tick ? '0 : clocks + 1'b1;
        if (tick) now <= now + 1'b1;
        if (rst) begin
            clocks <= '0;
            now    <= '0;
        end
    end

    // What each entry is.
    logic [ENTRIES-1:0] armed;  // a session is there
    logic [ENTRIES-1:0] told;   // it was told to be idle, and has had no packet since
    logic [ENTRIES-1:0] epoch;  // changes with each session

    logic [TIME_W-1:0] timeout;
    logic              begins;    // a session that waits for a clock without a packet
    logic              clearing;  // after reset: no session may begin
    logic [ID_W-1:0]   begin_entry;

    wire logic is_entry = write_data < 32'(ENTRIES);
    wire logic [ID_W-1:0] entry = write_data[ID_W-1:0];
    wire logic may_begin = write_addr == AT_BEGIN && is_entry && !begins && !clearing;
    wire logic may_end = write_addr == AT_END && is_entry;
    wire logic may_select = write_addr == AT_SELECT && is_entry;
    wire logic may_wait = write_addr == AT_TIMEOUT && write_data[31:TIME_W-1] == '0;
    assign write_fits = may_begin || may_end || may_select || may_wait;
    wire logic beginning = begins && !packet_valid;

    always_ff @(posedge clk) begin
        if (write && may_wait) timeout <= write_data[TIME_W-1:0];
        if (beginning) begins <= 1'b0;
        if (write && may_begin) begin
            begins      <= 1'b1;
            begin_entry <= entry;
        end
        if (rst) begin
            timeout <= '0;
            begins  <= 1'b0;
        end
    end

    // The time of the last packet, or of the beginning.
    logic [ID_W-1:0]        place;
    wire logic [TIME_W-1:0] last;
    wire logic              last_write = packet_valid || beginning;
    wire logic [ID_W-1:0]   last_entry = packet_valid ? packet_entry : begin_entry;
    em_ram_sdp #(.W(TIME_W), .AW(ID_W)) ram_last (
        .clk, .raddr(place), .q(last), .we(last_write), .waddr(last_entry), .d(now)
    );

    // The scan: an entry a clock. What is written while it is read, or looked at, is not idle.
    logic [ID_W-1:0] looked;
    logic            touched;
    logic            scans;
    wire logic [TIME_W-1:0] age = now - last;
    wire logic is_idle = scans && armed[looked] && !told[looked] && !touched
        && !(last_write && last_entry == looked) && age >= timeout;

    logic [ID_W-1:0]   fifo[2**FIFO_W];
    logic [FIFO_W:0]   fifo_in;
    logic [FIFO_W:0]   fifo_out;
    wire logic [FIFO_W:0] waiting = fifo_in - fifo_out;
    wire logic is_full = waiting[FIFO_W];
    wire logic is_told = is_idle && !is_full;
    assign irq = waiting != '0;

    logic read_begins;
    wire logic pop = read_begins && read_addr == AT_IDLE && irq;

    always_ff @(posedge clk) begin
        place   <= place + 1'b1;
        looked  <= place;
        touched <= last_write && last_entry == place;
        scans   <= timeout != '0;
        read_begins <= s_axil_arvalid && s_axil_arready;
        if (is_told) begin
            fifo[fifo_in[FIFO_W-1:0]] <= looked;
            fifo_in <= fifo_in + 1'b1;
        end
        if (pop) fifo_out <= fifo_out + 1'b1;
        if (rst) begin
            place       <= '0;
            scans       <= 1'b0;
            read_begins <= 1'b0;
            fifo_in     <= '0;
            fifo_out    <= '0;
        end
    end

    always_ff @(posedge clk) begin
        if (is_told) told[looked] <= 1'b1;
        if (packet_valid) told[packet_entry] <= 1'b0;
        if (beginning) begin
            armed[begin_entry] <= 1'b1;
            told[begin_entry]  <= 1'b0;
            epoch[begin_entry] <= !epoch[begin_entry];
        end
        if (write && may_end) armed[entry] <= 1'b0;
        if (rst) begin
            armed <= '0;
            told  <= '0;
            epoch <= '0;
        end
    end

    // Packets and octets; a read of one entry, three clocks long.
    wire logic [PKT_W-1:0]  packets;
    wire logic [BYTE_W-1:0] octets;
    wire logic              unused_match;
    logic [ID_W-1:0]        selected;
    logic [1:0]             selecting;
    logic [TIME_W-1:0]      kept_last;
    logic [PKT_W-1:0]       kept_packets;
    logic [BYTE_W-1:0]      kept_octets;
    logic [1:0]             kept_flags;

    // Memory holds anything at first: every word is cleared, with the epoch of the first session there.
    logic [ID_W:0] cleared;
    em_counters #(.ID_W(ID_W), .LEN_W(LEN_W), .PKT_W(PKT_W), .BYTE_W(BYTE_W)) counters (
        .clk, .rst,
        .rd_valid(packet_valid), .rd_id(packet_entry), .rd_epoch(epoch[packet_entry]), .rd_len(packet_octets),
        .ctl_id(selected), .ctl_epoch(epoch[selected]), .ctl_match(unused_match), .ctl_pkts(packets), .ctl_bytes(octets),
        .clr(clearing), .clr_id(cleared[ID_W-1:0])
    );
    always_ff @(posedge clk) begin
        if (clearing) cleared <= cleared + 1'b1;
        if (cleared[ID_W]) clearing <= 1'b0;
        if (rst) begin
            clearing <= 1'b1;
            cleared  <= '0;
        end
    end

    // The time comes by the scan's port, when that is at the entry: no later than a round.
    logic has_last;
    always_ff @(posedge clk) begin
        selecting <= {selecting[0], 1'b0};
        if (write && may_select) begin
            selected  <= entry;
            selecting <= 2'b01;
            has_last  <= 1'b0;
        end
        if (selecting[1]) begin
            kept_packets <= packets;
            kept_octets  <= octets;
            kept_flags   <= {told[selected], armed[selected]};
        end
        if (!has_last && selecting == '0 && looked == selected && !touched) begin
            kept_last <= last;
            has_last  <= 1'b1;
        end
        if (rst) begin
            selecting <= '0;
            has_last  <= 1'b1;
            kept_last <= '0;
            {kept_packets, kept_octets, kept_flags} <= '0;
        end
    end

    always_comb begin
        read_known = 1'b1;
        read_value = '0;
        unique case (read_addr)
            AT_IDENTIFIER: read_value = IDENTIFIER;
            AT_PARAMETERS: read_value = 32'(ID_W);
            AT_TIMEOUT:    read_value = 32'(timeout);
            AT_NOW:        read_value = 32'(now);
            AT_IDLE:       read_value = irq ? {1'b1, 31'(fifo[fifo_out[FIFO_W-1:0]])} : '0;
            AT_PACKETS:    read_value = kept_packets[31:0];
            AT_PACKETS+4:  read_value = 32'(kept_packets[PKT_W-1:32]);
            AT_OCTETS:     read_value = kept_octets[31:0];
            AT_OCTETS+4:   read_value = 32'(kept_octets[BYTE_W-1:32]);
            AT_LAST:       read_value = 32'(kept_last);
            AT_FLAGS:      read_value = {28'd0, begins, has_last && selecting == '0, kept_flags};
            default:       read_known = 1'b0;
        endcase
    end
endmodule

`default_nettype wire
