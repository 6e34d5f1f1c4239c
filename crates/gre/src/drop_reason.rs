//! Why the header remover drops a packet, beyond the engine's reasons.

kaido_engine::drop_reasons! {
    /// Why the header remover drops a packet, beyond the reasons of the engine.
    pub enum GreDrop;

    /// A GRE header that is cut off, or longer than its packet.
    MALFORMED = "gre_malformed",
    /// GRE of another version than 0.
    VERSION = "gre_version",
    /// GRE with flags of RFC 1701 that mean headers nobody here can read: routing, strict source route, recursion.
    FLAGS = "gre_flags",
    /// The checksum of GRE is wrong.
    CHECKSUM = "gre_checksum",
    /// A rule for packets in GRE says drop, or there is none for it and that says drop.
    RULE = "gre_rule",
}
