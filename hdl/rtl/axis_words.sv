// The words of 32 bits behind an Ethernet header, big-endian: IP headers and what follows them. Wires only.

`default_nettype none

module axis_words #(
    // Octets of a frame's front, and the words that are wanted of them; what is not there is zero.
    parameter int unsigned OCTETS = 96,
    parameter int unsigned WORDS = 20,
    parameter int unsigned FROM = 14
) (
    input  wire logic [OCTETS-1:0][7:0] octets,
    output wire logic [WORDS-1:0][31:0] words
);
    for (genvar word = 0; word < WORDS; word++) begin : g_word
        for (genvar octet = 0; octet < 4; octet++) begin : g_octet
            if (FROM + 4 * word + octet < OCTETS) begin : g_in
                assign words[word][8*(3-octet)+:8] = octets[FROM+4*word+octet];
            end else begin : g_out
                assign words[word][8*(3-octet)+:8] = 8'd0;
            end
        end
    end
    // What stands before and behind is not of these words.
    wire logic unused_octets = &{1'b0, octets};
endmodule

`default_nettype wire
