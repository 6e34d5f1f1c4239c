//! Fields of the GRE header remover.

use super::Field;

/// They all.
pub(super) const FIELDS: &[Field] = &[
    (
        "[port]",
        "peer_port",
        "name of a port",
        "the port that names this one",
        "Where packets go that come in here and are not routed: with their Ethernet addresses and tags, so that the node is \
         a bump in the wire. Without one they are left to the kernel.",
    ),
    (
        "gre",
        "unmatched",
        "\"decapsulate\", \"pass\", \"drop\" or \"punt\"",
        "\"pass\"",
        "Tunnel packets that no rule is for: they lose their headers, leave by the peer port as they are, are dropped, or left to the \
         kernel.",
    ),
    (
        "gre",
        "unreadable",
        "\"pass\", \"drop\" or \"punt\"",
        "\"drop\"",
        "Tunnel packets whose GRE header cannot be read: another version, flags of RFC 1701, cut off.",
    ),
    (
        "gre",
        "fragments",
        "\"assemble\", \"pass\" or \"drop\"",
        "\"assemble\"",
        "Tunnel packets that come in fragments: put together within the bounds of `[reassembly]`, or not.",
    ),
    (
        "[gre.rule]",
        "name",
        "1 to 63 characters",
        "required",
        "Its name in counters. Without any rule there is one: `all`.",
    ),
    ("[gre.rule]", "port", "name of a port", "any port", "Where tunnel packets come in."),
    ("[gre.rule]", "source", "prefix", "any", "Their outer source."),
    ("[gre.rule]", "destination", "prefix", "any", "Their outer destination."),
    ("[gre.rule]", "key", "number, \"any\" or \"none\"", "\"any\"", "Their key (RFC 2890)."),
    (
        "[gre.rule]",
        "inner",
        "list of \"ipv4\", \"ipv6\", \"ethernet\"",
        "all three",
        "What is in them. `ethernet` is Transparent Ethernet Bridging.",
    ),
    (
        "[gre.rule]",
        "verdict",
        "\"decapsulate\", \"pass\", \"drop\" or \"punt\"",
        "\"decapsulate\"",
        "What becomes of tunnel packets that meet the rule, if it is the first that they meet.",
    ),
    (
        "[gre.rule]",
        "ttl",
        "\"pipe\" or \"uniform\"",
        "\"pipe\"",
        "`decapsulate`: the hop count of what was in the tunnel stays, or becomes the outer one where that is lower (RFC 3443).",
    ),
    (
        "[gre.rule]",
        "dscp",
        "\"pipe\" or \"uniform\"",
        "\"pipe\"",
        "`decapsulate`: the class of what was in the tunnel stays, or becomes the outer one (RFC 2983). Congestion marks go \
         over in any case.",
    ),
    (
        "[gre.rule]",
        "forward",
        "\"peer_port\" or \"route\"",
        "\"peer_port\"",
        "`decapsulate`: out of the peer port, or by the node's routes to the next hop, one hop less.",
    ),
    ("[gre.encapsulation]", "name", "1 to 63 characters", "required", "Its name in counters."),
    (
        "[gre.encapsulation]",
        "port",
        "name of a port",
        "required",
        "Where packets come in that go into the tunnel.",
    ),
    ("[gre.encapsulation]", "source", "prefix", "any", "Their source."),
    ("[gre.encapsulation]", "destination", "prefix", "any", "Their destination."),
    (
        "[gre.encapsulation]",
        "ethernet",
        "true or false",
        "false",
        "Put whole Ethernet frames into the tunnel, whatever is in them.",
    ),
    ("[gre.encapsulation]", "local", "address", "required", "Near end of the tunnel: the outer source."),
    ("[gre.encapsulation]", "remote", "address", "required", "Far end of the tunnel: the outer destination."),
    ("[gre.encapsulation]", "key", "number", "none", "Key of the GRE header (RFC 2890)."),
    ("[gre.encapsulation]", "checksum", "true or false", "false", "Put a checksum into the GRE header."),
    (
        "[gre.encapsulation]",
        "hops",
        "1 to 255",
        "64",
        "Outer time to live with `ttl = \"pipe\"`, and of what has none.",
    ),
    (
        "[gre.encapsulation]",
        "ttl",
        "\"pipe\" or \"uniform\"",
        "\"pipe\"",
        "Whether the outer time to live is `hops` or the packet's own.",
    ),
    (
        "[gre.encapsulation]",
        "dscp",
        "\"pipe\" or \"uniform\"",
        "\"pipe\"",
        "Whether the outer class is zero or the packet's own. Its ECN field goes over in any case.",
    ),
    (
        "[gre.encapsulation]",
        "dont_fragment",
        "\"set\", \"clear\" or \"copy\"",
        "\"set\"",
        "Whether routers may cut the tunnel packet, over IPv4: not, yes (and what is too large is cut here), or as the \
         packet's own header says.",
    ),
    (
        "[gre.encapsulation]",
        "forward",
        "\"peer_port\" or \"route\"",
        "\"peer_port\"",
        "Out of the peer port with the frame's Ethernet addresses, or by the node's routes to the far end.",
    ),
];
