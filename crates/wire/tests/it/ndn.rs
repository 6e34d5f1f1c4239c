//! Packets of NDN: those that python-ndn made (`vectors/ndn`), read and written again octet by octet; and properties of
//! what reads and writes them.

// Functions of a test, which clippy does not take for tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::Path;

use kaido_wire::Error;
use kaido_wire::ndn::tlv::{self, Elements, Writer};
use kaido_wire::ndn::{
    ContentType, Data, DataRepr, Interest, InterestRepr, LpHeader, LpPacket, Name, Names, Signing,
    implicit_digest, name_from_uri, sha256, types,
};
use proptest::prelude::*;

/// The packets of a file, each as its members: `make.py` writes one a line.
fn packets(file: &str) -> Vec<BTreeMap<String, String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/ndn").join(file);
    let text = std::fs::read_to_string(path).expect("the file is committed");
    let (_, text) = text.split_once("\"steps\": [").expect("every file has steps");
    let mut packets: Vec<BTreeMap<String, String>> = Vec::new();
    for line in text.lines() {
        let Some((key, value)) = line.trim().trim_end_matches(',').split_once(": ") else { continue };
        let (key, value) = (key.trim_matches('"').to_owned(), value.trim_matches('"').to_owned());
        if key == "name" {
            packets.push(BTreeMap::new());
        }
        packets.last_mut().expect("a packet begins with its name").insert(key, value);
    }
    assert!(packets.len() > 10, "{file}");
    packets
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

fn number(packet: &BTreeMap<String, String>, key: &str) -> Option<u64> {
    packet.get(key).map(|text| text.parse().expect("a number"))
}

/// Conformance: NDN 0.3 Interest | Interests of python-ndn are read and written octet by octet
#[test]
fn interests_of_python_ndn() {
    for packet in packets("interests.json") {
        let octets = unhex(&packet["in"]);
        let read = Interest::parse(&octets, octets.len()).expect(&packet["name"]);
        let name = &packet["name"];
        assert_eq!(read.name.to_string(), packet["uri"], "{name}");
        assert!(read.is_digest_right([&octets[..]]), "{name}");
        assert_eq!(read.nonce.map(u64::from), number(&packet, "nonce"), "{name}");
        assert_eq!(read.lifetime_ms, number(&packet, "lifetime"), "{name}");
        assert_eq!(read.hop_limit.map(u64::from), number(&packet, "hop_limit"), "{name}");
        assert_eq!(read.can_be_prefix, packet.contains_key("can_be_prefix"), "{name}");
        assert_eq!(read.must_be_fresh, packet.contains_key("must_be_fresh"), "{name}");
        let hint: Vec<Name<'_>> = read.forwarding_hint.iter().flat_map(Names::iter).collect();
        let hint_text: Vec<String> = hint.iter().map(ToString::to_string).collect();
        assert_eq!(hint_text.join(" "), packet.get("forwarding_hint").cloned().unwrap_or_default(), "{name}");
        let parameters = read.parameters.map(|parameters| parameters.value);
        assert_eq!(parameters, packet.get("parameters").map(|text| unhex(text)).as_deref(), "{name}");
        let signature = read.parameters.and_then(|parameters| parameters.signature);
        assert_eq!(signature.is_some(), packet.contains_key("signed"), "{name}");
        if let Some(signature) = signature {
            let [before, behind] = read.signed_name();
            assert_eq!(sha256([before, behind, signature.signed])[..], *signature.value, "{name}");
            assert_eq!(signature.info.time_ms, number(&packet, "time"), "{name}");
            assert_eq!(signature.info.sequence, number(&packet, "sequence"), "{name}");
            let nonce = packet.get("signature_nonce").map(|text| unhex(text));
            assert_eq!(signature.info.nonce, nonce.as_deref(), "{name}");
        }
        let plain = read.name.components().filter(|c| !c.is_parameters_digest()).count();
        let repr = InterestRepr {
            name: read.name.prefix(plain),
            can_be_prefix: read.can_be_prefix,
            must_be_fresh: read.must_be_fresh,
            forwarding_hint: &hint,
            nonce: read.nonce,
            lifetime_ms: read.lifetime_ms,
            hop_limit: read.hop_limit,
            parameters,
            signing: signature.map(|signature| Signing {
                nonce: signature.info.nonce,
                time_ms: signature.info.time_ms,
                sequence: signature.info.sequence,
            }),
        };
        let mut written = vec![0; repr.len()];
        assert_eq!(repr.emit(&mut written), Ok(octets.len()), "{name}");
        assert_eq!(written, octets, "{name}");
    }
}

/// Conformance: NDN 0.3 Data | Data of python-ndn are read and written octet by octet, and their implicit digest is right
#[test]
fn data_of_python_ndn() {
    for packet in packets("data.json") {
        let octets = unhex(&packet["in"]);
        let name = &packet["name"];
        let read = Data::parse(&octets, octets.len()).expect(name);
        assert_eq!(read.name.to_string(), packet["uri"], "{name}");
        assert_eq!(read.content, unhex(&packet["content"]), "{name}");
        assert_eq!(read.meta.freshness_ms, number(&packet, "freshness_period").unwrap_or(0), "{name}");
        assert_eq!(read.meta.content_type.0, number(&packet, "content_type").unwrap_or(0), "{name}");
        let last = read.meta.final_block.map(|component| component.to_string());
        assert_eq!(last.as_ref(), packet.get("final_block_id"), "{name}");
        assert_eq!(implicit_digest(octets.chunks(100))[..], unhex(&packet["digest"]), "{name}");
        let signature = read.signature.expect(name);
        assert_eq!(sha256([signature.signed])[..], *signature.value, "{name}");
        let repr = DataRepr {
            name: read.name,
            content_type: read.meta.content_type,
            freshness_ms: read.meta.freshness_ms,
            final_block: read.meta.final_block,
            content: read.content,
        };
        let mut written = vec![0; repr.len()];
        assert_eq!(repr.emit(&mut written), Ok(written.len()), "{name}");
        // python-ndn writes a content type even if it is 0, where we write none.
        let ours = Data::parse(&written, written.len()).expect(name);
        assert_eq!((ours.name, ours.meta, ours.content), (read.name, read.meta, read.content), "{name}");
        assert_eq!(written == octets, read.meta.content_type != ContentType::BLOB, "{name}");
    }
}

/// Conformance: NDNLPv2 fields | Link packets of python-ndn are read and written octet by octet
#[test]
fn link_packets_of_python_ndn() {
    for packet in packets("link.json") {
        let octets = unhex(&packet["in"]);
        let name = &packet["name"];
        let read = LpPacket::parse(&octets, octets.len()).expect(name);
        let header = read.header;
        let fragment = &octets[read.fragment_at..][..read.fragment_len];
        assert_eq!(fragment, unhex(&packet["fragment"]), "{name}");
        assert_eq!(header.frag_index, number(&packet, "frag_index").unwrap_or(0), "{name}");
        assert_eq!(header.frag_count, number(&packet, "frag_count").unwrap_or(1), "{name}");
        assert_eq!(header.pit_token, packet.get("pit_token").map_or(vec![], |text| unhex(text)), "{name}");
        assert_eq!(header.nack, number(&packet, "nack"), "{name}");
        assert_eq!(header.next_hop_face, number(&packet, "next_hop_face_id"), "{name}");
        assert_eq!(header.incoming_face, number(&packet, "incoming_face_id"), "{name}");
        assert_eq!(header.congestion_mark, number(&packet, "congestion_mark").unwrap_or(0), "{name}");
        assert_eq!(header.no_cache, packet.contains_key("cache_policy"), "{name}");
        assert_eq!(header.non_discovery, packet.contains_key("non_discovery"), "{name}");
        let mut written = vec![0; header.len(fragment.len())];
        let len = header.emit(fragment.len(), &mut written).expect(name);
        assert_eq!([&written[..len], fragment].concat(), octets, "{name}");
    }
}

/// Hands octets to every parser; what is read must lie within them and be written as it was.
fn read_everything(octets: &[u8], total: usize) {
    if let Ok(interest) = Interest::parse(octets, total) {
        assert!(interest.nonce_at <= octets.len() && interest.hop_limit_at < octets.len());
        assert!(!interest.name.is_empty());
        let mut head = vec![0; interest.nonce_at + kaido_wire::ndn::NONCE_ROOM];
        if interest.nonce.is_none() {
            let new = interest.with_nonce(octets, total, 1, &mut head).unwrap();
            let again = [&head[..new.written], &octets[new.strip..]].concat();
            let again = Interest::parse(&again, total + new.written - new.strip).unwrap();
            assert_eq!((again.nonce, again.name), (Some(1), interest.name));
        }
        interest.is_digest_right([octets]);
    }
    if let Ok(data) = Data::parse(octets, total) {
        assert!(data.content.len() <= data.content_len && data.content_len <= total);
        assert_eq!(data.signature.is_some(), octets.len() == total);
        data.is_tail_right(&[octets].into_iter());
    }
    if let Ok(packet) = LpPacket::parse(octets, total) {
        assert_eq!(packet.fragment_at + packet.fragment_len, total);
        assert!(packet.header.frag_index < packet.header.frag_count);
    }
    if let Ok((name, len)) = Name::parse(octets) {
        assert!(len <= octets.len());
        assert_eq!(name.components().count(), name.len());
        let uri = name.to_string();
        let again = name_from_uri(&uri).unwrap();
        assert_eq!(Name::new(&again).unwrap().to_string(), uri);
    }
    assert!(Elements::new(octets).count() <= octets.len());
}

fn seeds() -> Vec<Vec<u8>> {
    ["interests.json", "data.json", "link.json"]
        .into_iter()
        .flat_map(packets)
        .map(|packet| unhex(&packet["in"]))
        .filter(|octets| octets.len() < 1000)
        .collect()
}

fn octets(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}

/// The octets of a name of up to 12 components.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let component = (prop_oneof![Just(8u32), 3u32..=65535], octets(300));
    prop::collection::vec(component, 1..12).prop_map(|components| {
        let mut encoded = vec![0; 8000];
        let mut writer = Writer::new(&mut encoded);
        for (kind, value) in components {
            writer.element(kind, &value).unwrap();
        }
        let len = writer.len();
        encoded.truncate(len);
        encoded
    })
}

proptest! {
    #[test]
    fn no_parser_panics_on_any_octets(bytes in octets(2048), more in 0usize..9000) {
        read_everything(&bytes, bytes.len());
        read_everything(&bytes, bytes.len() + more);
    }

    #[test]
    fn no_parser_panics_on_changed_packets(
        seed in prop::sample::select(seeds()),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut: prop::sample::Index,
    ) {
        let mut packet = seed;
        for (at, value) in edits {
            let at = at.index(packet.len());
            packet[at] = value;
        }
        read_everything(&packet, packet.len());
        let head = &packet[..cut.index(packet.len() + 1)];
        read_everything(head, packet.len());
        read_everything(&packet[2..], packet.len() - 2);
    }

    /// What the first segment says is what the whole packet says.
    #[test]
    fn a_first_segment_reads_as_the_whole(seed in prop::sample::select(seeds()), cut: prop::sample::Index) {
        let head = &seed[..cut.index(seed.len() + 1)];
        if let (Ok(part), Ok(whole)) = (Data::parse(head, seed.len()), Data::parse(&seed, seed.len())) {
            prop_assert_eq!((part.name, part.meta, part.content_len), (whole.name, whole.meta, whole.content_len));
            prop_assert!(whole.content.starts_with(part.content));
            prop_assert!(head.len() == seed.len() || part.is_tail_right(&[head, &seed[head.len()..]].into_iter()));
        }
        if let (Ok(part), Ok(whole)) = (Interest::parse(head, seed.len()), Interest::parse(&seed, seed.len())) {
            prop_assert_eq!((part.name, part.nonce, part.hop_limit), (whole.name, whole.nonce, whole.hop_limit));
            prop_assert_eq!(part.lifetime_ms, whole.lifetime_ms);
        }
    }

    #[test]
    fn names_are_ordered_and_are_prefixes_of_what_is_longer(one in name(), other in name(), count in 0usize..12) {
        let (one, other) = (Name::new(&one).unwrap(), Name::new(&other).unwrap());
        prop_assert_eq!(one.cmp(&other), other.cmp(&one).reverse());
        prop_assert_eq!(one.cmp(&other).is_eq(), one == other);
        let prefix = one.prefix(count);
        prop_assert!(prefix.is_prefix_of(&one) && prefix <= one);
        prop_assert_eq!(prefix.len(), count.min(one.len()));
        prop_assert_eq!(prefix.components().count(), prefix.len());
        prop_assert_eq!(&name_from_uri(&one.to_string()).unwrap()[..], one.value());
    }

    #[test]
    fn numbers_are_read_as_they_are_written(value: u32, rest in octets(4)) {
        let mut buffer = [0; 16];
        let mut writer = Writer::new(&mut buffer);
        writer.number(value as usize).unwrap();
        writer.octets(&rest).unwrap();
        let len = tlv::number_len(value as usize);
        prop_assert_eq!(tlv::number(&buffer), Ok((value, len)));
        prop_assert_eq!(tlv::number(&buffer[..len - 1]), Err(Error::Truncated));
    }

    #[test]
    fn packets_are_read_as_they_are_written(
        name in name(), content in octets(3000), nonce: Option<u32>, lifetime_ms: Option<u64>, hop_limit: Option<u8>,
        parameters in prop::option::of(octets(400)), time_ms: Option<u64>, signed: bool, freshness_ms: u64,
    ) {
        let name = Name::new(&name).unwrap();
        let signing = signed.then_some(Signing { nonce: None, time_ms, sequence: None });
        let interest = InterestRepr {
            name, nonce, lifetime_ms, hop_limit, signing, parameters: parameters.as_deref(),
            ..InterestRepr::default()
        };
        let mut packet = vec![0; interest.len()];
        prop_assert_eq!(interest.emit(&mut packet), Ok(packet.len()));
        let read = Interest::parse(&packet, packet.len()).unwrap();
        prop_assert_eq!((read.nonce, read.lifetime_ms, read.hop_limit), (nonce, lifetime_ms, hop_limit));
        prop_assert!(read.is_digest_right([&packet[..]]) && name.is_prefix_of(&read.name));
        let data = DataRepr {
            name, freshness_ms, content: &content, content_type: ContentType::BLOB, final_block: name.last(),
        };
        let mut packet = vec![0; data.len()];
        prop_assert_eq!(data.emit(&mut packet), Ok(packet.len()));
        let read = Data::parse(&packet, packet.len()).unwrap();
        prop_assert_eq!((read.name, read.content, read.meta.freshness_ms), (name, &content[..], freshness_ms));
    }

    #[test]
    fn link_headers_are_read_as_they_are_written(
        sequence: Option<u64>, frag_index in 0u64..300, more in 1u64..300, token in octets(33), nack: Option<u64>,
        faces: (Option<u64>, Option<u64>), marks: (u64, bool, bool), fragment in 1usize..9000,
    ) {
        let header = LpHeader {
            sequence, frag_index, frag_count: frag_index + more, pit_token: &token, nack,
            next_hop_face: faces.0, incoming_face: faces.1,
            congestion_mark: marks.0, no_cache: marks.1, non_discovery: marks.2,
            ..LpHeader::default()
        };
        let mut packet = vec![0; header.len(fragment) + fragment];
        prop_assert_eq!(header.emit(fragment, &mut packet), Ok(header.len(fragment)));
        let read = LpPacket::parse(&packet, packet.len()).unwrap();
        prop_assert_eq!((read.header, read.fragment_len), (header, fragment));
        let mut elements = Elements::new(&packet);
        prop_assert_eq!(elements.next().map(|element| element.map(|e| e.kind)), Some(Ok(types::LP_PACKET)));
        prop_assert_eq!(elements.next(), None);
    }
}
