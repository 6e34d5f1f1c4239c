//! Every metric that a GRE header remover offers beyond those of the node, in the order in which they are shown.

use kaido_node::families;

families! {
    GRE_PACKETS = Counter "kaido_gre_rule_packets_total" ["rule", "verdict"]
        "Packets that met a rule of the GRE header remover, or went into a tunnel, on every datapath.";
    GRE_BYTES = Counter "kaido_gre_rule_bytes_total" ["rule", "verdict"] "Bytes of those as they came, with Ethernet headers, without FCS.";
    GRE_KERNEL_PACKETS = Counter "kaido_gre_kernel_packets_total" ["port", "disposition"]
        "Packets received on the port by what its program did: passed, stripped, handed to the engine, left to the kernel, or dropped.";
}
