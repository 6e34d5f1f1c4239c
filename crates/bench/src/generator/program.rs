//! A stream's template, compiled: what of a packet is always the same, and the few steps that make the rest.
//!
//! ```text
//!   Shape (by length):  | head: all headers, lengths set, variable bits zero | payload …      | trailer |
//!   for each packet:      values at their offsets                                               two words
//!                         each checksum := constant of the shape + what was written within its reach
//! ```
//! A frame that holds a packet of the shape already is not written again but where packets differ. [`Step`] makes several
//! packets at a time.
//!
//! Nothing is looked up by name, and nothing is allocated, once a program is made. A packet is a function of its sequence
//! number alone: [`Cursor`]s of several workers, or of the receiver, make the same packets.

use arrayvec::ArrayVec;
use kaido_wire::{IpProtocol, checksum};

use super::counter::{Counters, Position};
use super::layout::{Kind, Layout};
use super::lengths::ShapePicker;
use super::step::Step;
use super::{FRAME_MIN, Refusal};
use crate::stream::{Checksums, Lengths, STREAM_FRAME_MAX, Template, Width};
use crate::trailer::{TRAILER_LEN, TrailerStart};

/// Most places that a program writes.
pub(crate) const WRITES_MAX: usize = 32;
/// Most checksums of a packet that change.
pub(super) const SITES_MAX: usize = 8;
/// Most lines of a packet that are fetched ahead.
const LINES_MAX: usize = 8;
/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// A field that is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    /// Number of the variable.
    pub(super) value: u8,
    pub(super) width: Width,
    pub(super) offset: u16,
    /// Added to the value before it is shifted.
    pub(super) add: u64,
    pub(super) left: u8,
    pub(super) right: u8,
    pub(super) mask: u64,
    /// Bits by which the sum of its words is shifted where it counts. It is a byte where the field ends in the upper half
    /// of a word of the packet (RFC 1071 section 2 (B)).
    pub(super) sum_shift: u8,
    /// The checksums that reach over it, one bit each.
    pub(super) sites: u8,
}

/// A checksum that changes from packet to packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    /// Offset of the checksum.
    pub(super) at: u16,
    /// UDP's zero means none (RFC 768).
    pub(super) is_udp: bool,
    /// Whether the trailer is within its reach.
    pub(super) has_trailer: bool,
    /// The checksums, of layers further out, that reach over this one.
    pub(super) outer: u8,
}

/// Frames of one length.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// The front of the frame, with the variable bits and the checksums of the sites zero.
    pub(crate) head: Box<[u8]>,
    /// Bytes of the frame.
    pub(crate) len: usize,
    /// For each site the sum of what does not change.
    pub(super) base: [u16; SITES_MAX],
    /// Offsets of the cache lines in which its packets differ, when they begin with a line.
    pub(crate) lines: ArrayVec<u16, LINES_MAX>,
}

/// A compiled template.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) shapes: Box<[Shape]>,
    picker: ShapePicker,
    pub(super) ops: ArrayVec<Op, WRITES_MAX>,
    /// The innermost first: an outer checksum reaches over inner ones.
    pub(super) sites: ArrayVec<Site, SITES_MAX>,
    /// Bytes from the front that change from packet to packet: headers, and every field that is written.
    pub(crate) head_len: usize,
    /// What follows the head, as long as the longest frame needs it.
    payload: Box<[u8]>,
    /// Whether there is a trailer.
    pub(super) trailer: bool,
    pub(super) counters: Counters,
}

/// A place in a program's sequence of packets.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    pub(super) counters: Position,
    /// Number of the packet.
    pub(super) sequence: u64,
    pub(super) stride: u64,
}

/// A reach of bytes that a checksum covers.
struct Cover {
    checksum_at: usize,
    is_udp: bool,
    from: usize,
    /// `None`: to the end of the packet.
    to: Option<usize>,
    /// Addresses of the pseudo-header.
    addresses: Option<(usize, usize)>,
    protocol: IpProtocol,
}

impl Cover {
    /// The checksums of a layout that are to be kept right, the innermost first.
    fn all(layout: &Layout, template: &[u8], which: Checksums) -> Vec<Self> {
        let mut covers = Vec::new();
        let mut ip: Option<(usize, usize, bool)> = None;
        for (place, layer) in layout.layers.iter().enumerate() {
            let upper = |checksum_at: usize, protocol, is_udp, has_pseudo: bool| Self {
                checksum_at: layer.at + checksum_at,
                is_udp,
                from: layer.at,
                to: None,
                addresses: ip.filter(|_| has_pseudo).map(|(from, to, _)| (from, to)),
                protocol,
            };
            match layer.kind {
                Kind::Ipv4 => {
                    ip = Some((layer.at + 12, layer.at + 20, true));
                    covers.push(Self {
                        checksum_at: layer.at + 10,
                        is_udp: false,
                        from: layer.at,
                        to: Some(layer.end),
                        addresses: None,
                        protocol: IpProtocol(0),
                    });
                }
                Kind::Ipv6 => ip = Some((layer.at + 8, layer.at + 40, false)),
                Kind::Udp if which == Checksums::All => {
                    let is_none = template[layer.at + 6..layer.at + 8] == [0, 0];
                    let over_ipv4 = ip.is_some_and(|(.., is_ipv4)| is_ipv4);
                    let is_tunnel = layout
                        .layers
                        .get(place + 1)
                        .is_some_and(|next| matches!(next.kind, Kind::Gtpu | Kind::Vxlan));
                    if !(is_none && (over_ipv4 || is_tunnel)) {
                        covers.push(upper(6, IpProtocol::UDP, true, true));
                    }
                }
                Kind::Tcp if which == Checksums::All => covers.push(upper(16, IpProtocol::TCP, false, true)),
                Kind::Icmpv4 if which == Checksums::All => {
                    covers.push(upper(2, IpProtocol::ICMP, false, false));
                }
                Kind::Icmpv6 if which == Checksums::All => {
                    covers.push(upper(2, IpProtocol::ICMPV6, false, true));
                }
                Kind::Udp
                | Kind::Tcp
                | Kind::Icmpv4
                | Kind::Icmpv6
                | Kind::Gtpu
                | Kind::Gre
                | Kind::Vxlan => {}
            }
        }
        if which == Checksums::None {
            covers.clear();
        }
        covers.reverse();
        covers
    }

    /// Whether a byte is within reach.
    fn has(&self, at: usize) -> bool {
        let in_pseudo = self.addresses.is_some_and(|(from, to)| (from..to).contains(&at));
        in_pseudo || (at >= self.from && self.to.is_none_or(|to| at < to))
    }

    /// The sum over a packet, with its checksum as it is there.
    fn sum(&self, packet: &[u8]) -> u16 {
        let to = self.to.unwrap_or(packet.len());
        let pseudo = self.addresses.map_or(0, |(from, end)| {
            let length = u32::try_from(packet.len() - self.from).unwrap_or(u32::MAX).to_be_bytes();
            let protocol = [0, self.protocol.0];
            checksum::combine(&[
                checksum::sum(&packet[from..end]),
                checksum::sum(&length),
                checksum::sum(&protocol),
            ])
        });
        checksum::combine(&[pseudo, checksum::sum(&packet[self.from..to])])
    }
}

impl Program {
    /// Compiles a template; every refusal names its field.
    pub(crate) fn new(template: &Template, trailer: bool, seed: u64) -> Result<Self, Vec<Refusal>> {
        let mut refusals = Vec::new();
        let layout = Layout::of(&template.bytes);
        if layout.link_end == 0 || template.bytes.len() > usize::from(STREAM_FRAME_MAX) {
            let message = format!(
                "{} bytes: a frame begins with an Ethernet header and has at most {STREAM_FRAME_MAX} bytes",
                template.bytes.len()
            );
            return Err(vec![("bytes".to_owned(), message)]);
        }
        let counters = Counters::new(&template.variables, &template.tuples, seed, &mut refusals);
        let covers = Cover::all(&layout, &template.bytes, template.checksums);
        let ops = operations(template, &counters, &layout, &covers, &mut refusals);
        let written = ops.iter().map(|op| usize::from(op.offset) + op.width.bytes()).max().unwrap_or(0);
        let head_len = layout.headers_end.max(written);
        let least = head_len + if trailer { TRAILER_LEN } else { 0 };
        let usual = template.bytes.len().max(least).max(FRAME_MIN);
        let (picker, lengths) = ShapePicker::new(&template.lengths, usual, seed, &mut refusals);
        let moving: ArrayVec<usize, SITES_MAX> = (0..covers.len())
            .filter(|site| {
                let has_trailer = trailer && covers[*site].to.is_none();
                has_trailer || ops.iter().any(|op| op.sites & 1 << site != 0)
            })
            .collect();
        if !refusals.is_empty() {
            return Err(refusals);
        }
        let lengths: Vec<usize> = lengths.iter().map(|len| usize::from(*len).max(least)).collect();
        let longest = lengths.iter().copied().max().unwrap_or(least);
        let payload = payload(template, head_len, longest - head_len);
        let blank = Blank {
            template,
            layout: &layout,
            ops: &ops,
            covers: &covers,
            moving: &moving,
            head_len,
            trailer,
        };
        let shapes = lengths.iter().map(|len| blank.shape(&payload, *len)).collect();
        // From here on sites are numbered among those that move.
        let compact =
            |mask: u8| moving.iter().enumerate().fold(0u8, |sum, (to, from)| sum | (mask >> from & 1) << to);
        let sites = moving
            .iter()
            .map(|&place| {
                let cover = &covers[place];
                let further = covers.iter().enumerate().skip(place + 1);
                let outer = further.filter(|(_, outer)| outer.has(cover.checksum_at));
                Site {
                    at: u16::try_from(cover.checksum_at).unwrap_or(u16::MAX),
                    is_udp: cover.is_udp,
                    has_trailer: trailer && cover.to.is_none(),
                    outer: compact(outer.fold(0, |sum, (place, _)| sum | 1 << place)),
                }
            })
            .collect();
        let ops: ArrayVec<Op, WRITES_MAX> =
            ops.into_iter().map(|op| Op { sites: compact(op.sites), ..op }).collect();
        Ok(Self { shapes, picker, ops, sites, head_len, payload, trailer, counters })
    }

    /// Mean length of its frames, in bytes.
    pub(crate) fn mean_len(&self) -> f64 {
        self.picker.mean(|shape| self.shapes[shape].len as f64)
    }

    /// A cursor at a sequence number that moves on by `stride`.
    pub(crate) fn cursor(&self, sequence: u64, stride: u64) -> Cursor {
        Cursor { counters: self.counters.at(sequence, stride), sequence, stride }
    }

    /// Moves a cursor on by one packet of its own.
    pub(crate) fn skip(&self, cursor: &mut Cursor) {
        cursor.sequence += cursor.stride;
        cursor.counters = self.counters.at(cursor.sequence, cursor.stride);
    }

    /// Number of the shape of a packet.
    #[inline(always)]
    pub(crate) fn shape(&self, sequence: u64) -> u16 {
        self.picker.pick(sequence)
    }

    /// Writes what packets of a shape have in common.
    #[inline(always)]
    pub(crate) fn lay(&self, shape: &Shape, packet: &mut [u8]) {
        let (head, behind) = packet.split_at_mut(self.head_len);
        head.copy_from_slice(&shape.head);
        behind.copy_from_slice(&self.payload[..shape.len - self.head_len]);
    }

    /// The packet of a sequence number, of a stream and with a stamp.
    pub(crate) fn packet(&self, sequence: u64, trailer: &TrailerStart, into: &mut Vec<u8>) {
        let number = self.shape(sequence);
        let shape = &self.shapes[usize::from(number)];
        into.resize(shape.len, 0);
        self.lay(shape, into);
        let mut packets = [into.as_mut_slice()];
        Step::<1>::new().write(
            self,
            &mut self.cursor(sequence, 1),
            trailer,
            &std::iter::once(number),
            &mut packets,
        );
    }
}

/// What all shapes of a program are made from.
struct Blank<'p> {
    template: &'p Template,
    layout: &'p Layout,
    ops: &'p [Op],
    covers: &'p [Cover],
    /// Those of the covers whose checksums are worked out for each packet.
    moving: &'p [usize],
    head_len: usize,
    trailer: bool,
}

impl Blank<'_> {
    fn shape(&self, payload: &[u8], len: usize) -> Shape {
        let mut packet = self.template.bytes.clone();
        packet.resize(self.head_len, 0);
        packet.extend_from_slice(&payload[..len - self.head_len]);
        // A template that goes out as long as it is may lie about its lengths.
        if self.template.lengths != Lengths::Template || len != self.template.bytes.len() {
            self.layout.set_lengths(&mut packet, len);
        }
        for op in self.ops {
            op.clear(&mut packet);
        }
        if self.trailer {
            packet[len - TRAILER_LEN..].fill(0);
        }
        for cover in self.covers {
            packet[cover.checksum_at..cover.checksum_at + 2].fill(0);
        }
        let mut base = [0; SITES_MAX];
        for (place, cover) in self.covers.iter().enumerate() {
            let sum = cover.sum(&packet);
            match self.moving.iter().position(|moving| *moving == place) {
                Some(site) => base[site] = sum,
                None => {
                    let checksum = if cover.is_udp { checksum::udp_sent(!sum) } else { !sum };
                    packet[cover.checksum_at..cover.checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
                }
            }
        }
        packet.truncate(self.head_len);
        Shape { head: packet.into(), len, base, lines: self.lines(len) }
    }

    /// The cache lines in which packets of a length differ, as many as are worth fetching ahead.
    fn lines(&self, len: usize) -> ArrayVec<u16, LINES_MAX> {
        let fields = self.ops.iter().map(|op| (usize::from(op.offset), op.width.bytes()));
        let checksums = self.moving.iter().map(|&site| (self.covers[site].checksum_at, 2));
        let trailer = self.trailer.then_some((len - TRAILER_LEN, TRAILER_LEN));
        let mut lines = ArrayVec::new();
        for at in fields.chain(checksums).chain(trailer).flat_map(|(at, len)| [at, at + len - 1]) {
            let line = u16::try_from(at / LINE * LINE).unwrap_or(u16::MAX);
            if !lines.contains(&line) && lines.try_push(line).is_err() {
                break;
            }
        }
        lines
    }
}

/// The bytes behind the head: the template's, and again from their beginning. A template without any gets ascending ones.
fn payload(template: &Template, head_len: usize, len: usize) -> Box<[u8]> {
    let own = template.bytes.get(head_len..).unwrap_or_default();
    let ascending: Vec<u8> = (0..=u8::MAX).collect();
    let pattern = if own.is_empty() { &ascending } else { own };
    pattern.iter().copied().cycle().take(len).collect()
}

/// The writes as operations, or what is wrong with them.
fn operations(
    template: &Template,
    counters: &Counters,
    layout: &Layout,
    covers: &[Cover],
    refusals: &mut Vec<Refusal>,
) -> Vec<Op> {
    let mut taken = vec![0u8; template.bytes.len()];
    let mut ops = Vec::new();
    if template.writes.len() > WRITES_MAX {
        let message = format!("{} places are written; {WRITES_MAX} are possible", template.writes.len());
        refusals.push(("writes".to_owned(), message));
    }
    for (place, write) in template.writes.iter().enumerate() {
        let mut refuse =
            |field: &str, message: String| refusals.push((format!("writes[{place}].{field}"), message));
        let Some((value, own)) = counters.find(&write.variable) else {
            refuse("variable", format!("there is no variable `{}`", write.variable));
            continue;
        };
        let width = write.width.unwrap_or(own);
        let mask = write.mask.unwrap_or(width.max());
        if mask == 0 || mask > width.max() {
            refuse("mask", format!("{mask:#x} is no mask for {} bytes", width.bytes()));
            continue;
        }
        if write.shift.unsigned_abs() >= 64 {
            refuse("shift", format!("{} bits are beyond a value's 64", write.shift));
            continue;
        }
        let from = usize::from(write.offset);
        let to = from + width.bytes();
        if to > template.bytes.len() {
            refuse("offset", format!("bytes {from} to {} of a template of {}", to - 1, template.bytes.len()));
            continue;
        }
        let bits = &mask.to_be_bytes()[8 - width.bytes()..];
        if taken[from..to].iter().zip(bits).any(|(taken, bits)| taken & bits != 0) {
            refuse("offset", "another place is written there already".to_owned());
            continue;
        }
        taken[from..to].iter_mut().zip(bits).for_each(|(taken, bits)| *taken |= bits);
        let touched: Vec<usize> =
            (from..to).zip(bits).filter(|(_, bits)| **bits != 0).map(|(at, _)| at).collect();
        let varied = (from..to).zip(bits).filter(|(_, bits)| **bits != 0);
        let mut found =
            varied.filter_map(|(at, bits)| structural(&template.bytes, layout, covers, at, *bits));
        if let Some(what) = found.next() {
            refuse("offset", format!("{what} cannot vary within a stream"));
            continue;
        }
        let mut sites = 0;
        let mut crosses = false;
        for (site, cover) in covers.iter().enumerate() {
            let within = touched.iter().filter(|at| cover.has(**at)).count();
            crosses |= within != 0 && within != touched.len();
            sites |= u8::from(within != 0) << site;
        }
        if crosses {
            refuse("offset", "it crosses the border of what a checksum covers".to_owned());
            continue;
        }
        ops.push(Op {
            value,
            width,
            offset: write.offset,
            add: write.add.cast_unsigned(),
            left: write.shift.max(0).unsigned_abs(),
            right: write.shift.min(0).unsigned_abs(),
            mask,
            sum_shift: if to % 2 == 1 { 8 } else { 0 },
            sites,
        });
    }
    ops
}

/// What a byte says of the packet's structure, if one of the bits that vary does: the program was compiled for one structure.
fn structural(
    template: &[u8],
    layout: &Layout,
    covers: &[Cover],
    at: usize,
    bits: u8,
) -> Option<&'static str> {
    if covers.iter().any(|cover| (cover.checksum_at..cover.checksum_at + 2).contains(&at)) {
        return Some("a checksum that is kept right");
    }
    let changes = |bit: u8| {
        let mut other = template.to_vec();
        other[at] ^= 1 << bit;
        let other = Layout::of(&other);
        other.layers != layout.layers || other.link_end != layout.link_end
    };
    (0..8).any(|bit| bits & 1 << bit != 0 && changes(bit)).then_some("what says which headers follow")
}

impl Op {
    /// Clears the bits that the operation writes.
    fn clear(&self, packet: &mut [u8]) {
        let at = usize::from(self.offset);
        let mask = &self.mask.to_be_bytes()[8 - self.width.bytes()..];
        packet[at..].iter_mut().zip(mask).for_each(|(byte, mask)| *byte &= !mask);
    }
}
