//! Why bytes are not the packet they claim to be, or a packet cannot become bytes.

use core::fmt;

/// A fault found while parsing or emitting; each variant's text is its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Error {
    /// The slice ends before the header does.
    Truncated,
    /// The version, protocol type or hardware type is not the one of this format.
    Version,
    /// The header length field is below the minimum of the format or past the packet.
    HeaderLength,
    /// The length field is below the header's own length, past the slice, or zero where a payload is announced.
    Length,
    /// The checksum does not match.
    Checksum,
    /// The chain of headers is longer than the bound of this implementation.
    TooManyHeaders,
    /// A header stands where its standard forbids it.
    HeaderOrder,
    /// A flag is set that must not be, or whose meaning is not implemented.
    Flags,
    /// An extension header announces length zero, or too short a length for its content.
    ExtensionLength,
    /// The message type is not one this parser reads.
    MessageType,
    /// An information element or option is missing, truncated, or of a wrong length.
    Element,
    /// An element is not known and is of a type that must be.
    Unrecognised,
    /// A value does not fit the field that carries it.
    Range,
    /// The buffer to emit into is too small.
    BufferTooSmall,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the slice ends before the header does",
            Self::Version => "wrong version, protocol type or hardware type",
            Self::HeaderLength => "header length out of bounds",
            Self::Length => "length field out of bounds",
            Self::Checksum => "checksum does not match",
            Self::TooManyHeaders => "chain of headers too long",
            Self::HeaderOrder => "header at a forbidden place",
            Self::Flags => "flag set that must not be",
            Self::ExtensionLength => "extension header length is zero or too short",
            Self::MessageType => "message type not readable here",
            Self::Element => "information element or option missing or of a wrong length",
            Self::Unrecognised => "element not known that must be",
            Self::Range => "value does not fit its field",
            Self::BufferTooSmall => "buffer too small to emit into",
        })
    }
}

impl core::error::Error for Error {}
