//! PFD Management Request (TS 29.244 7.4.3.1) and Application ID (8.2.6).

use kaido_n4::{
    ApplicationId, DomainPattern, DomainSource, Pfd, PfdManagement, Rejection, SdfFilter, UrlPattern,
};
use rs_pfcp::ie::IeType;

use crate::walk::{Group, Parts, incorrect, octets, unsupported};

/// Reads the PFDs of applications. The Node ID is the endpoint's to judge.
pub(crate) fn pfd_management(group: &Group<'_>) -> Result<PfdManagement, Rejection> {
    let applications = group.all(IeType::ApplicationIdsPfds).map(application);
    Ok(PfdManagement { applications: applications.collect::<Result<_, _>>()? })
}

fn application(value: &[u8]) -> Result<(ApplicationId, Vec<Pfd>), Rejection> {
    let group = Group::of(IeType::ApplicationIdsPfds, value)?;
    let id = application_id(group.mandatory(IeType::ApplicationId)?)?;
    let mut pfds = Vec::new();
    for context in group.all(IeType::PfdContext) {
        let context = Group::of(IeType::PfdContext, context)?;
        context.mandatory(IeType::PfdContents)?;
        for contents in context.all(IeType::PfdContents) {
            pfds.push(pfd_contents(contents)?);
        }
    }
    Ok((id, pfds))
}

/// Application ID (8.2.6): text.
pub(super) fn application_id(value: &[u8]) -> Result<ApplicationId, Rejection> {
    match std::str::from_utf8(value) {
        Ok(text) if !text.is_empty() => Ok(ApplicationId(text.into())),
        _ => Err(incorrect(IeType::ApplicationId, "an application's name is text")),
    }
}

/// PFD Contents (8.2.39): `ADNP AURL AFD DNP CP DN URL FD` in the first octet, then each part that is there.
fn pfd_contents(value: &[u8]) -> Result<Pfd, Rejection> {
    const KIND: IeType = IeType::PfdContents;
    let [flags, _spare] = octets::<2>(KIND, value)?;
    let has = |bit: u8| flags >> (bit - 1) & 1 != 0;
    let mut parts = Parts::of(KIND, value, 2);
    let mut pfd = Pfd::default();
    if has(1) {
        pfd.flows.push(flow(parts.counted()?)?);
    }
    if has(2) {
        pfd.urls.push(url(parts.counted()?)?);
    }
    let name = if has(3) { Some(parts.counted()?) } else { None };
    if has(4) {
        return Err(unsupported(KIND, "a custom PFD content"));
    }
    let source = if has(5) { source(parts.counted()?)? } else { DomainSource::Any };
    match name {
        Some(name) => pfd.domains.push(domain(name, source)?),
        None if has(5) => return Err(incorrect(KIND, "a domain name protocol without a domain name")),
        None => {}
    }
    if has(6) {
        let mut more = Parts::of(KIND, parts.counted()?, 0);
        while !more.is_empty() {
            pfd.flows.push(flow(more.counted()?)?);
        }
    }
    if has(7) {
        let mut more = Parts::of(KIND, parts.counted()?, 0);
        while !more.is_empty() {
            pfd.urls.push(url(more.counted()?)?);
        }
    }
    if has(8) {
        let mut more = Parts::of(KIND, parts.counted()?, 0);
        while !more.is_empty() {
            let (name, protocol) = (more.counted()?, more.counted()?);
            let source = if protocol.is_empty() { DomainSource::Any } else { self::source(protocol)? };
            pfd.domains.push(domain(name, source)?);
        }
    }
    if pfd == Pfd::default() {
        return Err(incorrect(KIND, "a PFD that describes nothing"));
    }
    Ok(pfd)
}

fn text(octets: &[u8]) -> Result<&str, Rejection> {
    std::str::from_utf8(octets).map_err(|_| incorrect(IeType::PfdContents, "a PFD is text"))
}

fn flow(octets: &[u8]) -> Result<SdfFilter, Rejection> {
    SdfFilter::parse(text(octets)?).map_err(|error| incorrect(IeType::PfdContents, error.to_string()))
}

fn url(octets: &[u8]) -> Result<UrlPattern, Rejection> {
    let fault = || incorrect(IeType::PfdContents, "a URL of which nothing can be matched");
    UrlPattern::parse(text(octets)?).ok_or_else(fault)
}

fn domain(octets: &[u8], source: DomainSource) -> Result<DomainPattern, Rejection> {
    let fault =
        || unsupported(IeType::PfdContents, "a domain name that is neither a name nor `*.` and a name");
    DomainPattern::parse(text(octets)?, source).ok_or_else(fault)
}

/// Domain Name Protocol: where the name is to be looked for. Certificates are not looked into.
fn source(octets: &[u8]) -> Result<DomainSource, Rejection> {
    match octets {
        b"DNS_QNAME" => Ok(DomainSource::Dns),
        b"TLS_SNI" => Ok(DomainSource::TlsSni),
        _ => Err(unsupported(IeType::PfdContents, "a domain name protocol other than DNS_QNAME and TLS_SNI")),
    }
}

#[cfg(test)]
mod tests {
    use kaido_n4::Cause;

    use super::*;

    fn counted(text: &[u8]) -> Vec<u8> {
        [&u16::try_from(text.len()).unwrap().to_be_bytes()[..], text].concat()
    }

    const FLOW: &[u8] = b"permit out ip from 192.0.2.0/24 to assigned";

    /// Conformance: TS 29.244 8.2.39 | PFD Contents with flow descriptions, URLs, domain names, one or more of each (PFDE)
    #[test]
    fn every_part_of_a_pfd_is_read() {
        let lists =
            |items: &[&[u8]]| counted(&items.iter().flat_map(|item| counted(item)).collect::<Vec<_>>());
        let value = [
            vec![0xf7, 0],
            counted(FLOW),
            counted(b"http://www.example.org/a"),
            counted(b"www.example.org"),
            counted(b"TLS_SNI"),
            lists(&[FLOW, FLOW]),
            lists(&[b"example.net"]),
            lists(&[b"*.example.com", b"DNS_QNAME", b"example.com", b""]),
        ]
        .concat();
        let pfd = pfd_contents(&value).unwrap();
        assert_eq!((pfd.flows.len(), pfd.urls.len(), pfd.domains.len()), (3, 2, 3));
        assert!(pfd.domains[0].matches(b"www.example.org", DomainSource::TlsSni));
        assert!(!pfd.domains[0].matches(b"www.example.org", DomainSource::Dns));
        for end in 0..value.len() {
            assert_eq!(pfd_contents(&value[..end]).unwrap_err().cause, Cause::InvalidLength, "{end}");
        }
    }

    #[test]
    fn what_cannot_be_matched_is_refused() {
        let one = |flags: u8, text: &[u8]| [vec![flags, 0], counted(text)].concat();
        for (value, cause) in [
            (vec![0, 0], Cause::MandatoryIeIncorrect),
            (one(1, b"permit out ip from any"), Cause::MandatoryIeIncorrect),
            (one(1, &[0xff]), Cause::MandatoryIeIncorrect),
            (one(2, b"http://"), Cause::MandatoryIeIncorrect),
            (one(4, b".*\\.example\\.org$"), Cause::ServiceNotSupported),
            (one(8, b"custom"), Cause::ServiceNotSupported),
            (one(16, b"TLS_SNI"), Cause::MandatoryIeIncorrect),
            (one(16, b"TLS_SAN"), Cause::ServiceNotSupported),
        ] {
            let fault = pfd_contents(&value).unwrap_err();
            assert_eq!((fault.cause, fault.offending_ie), (cause, Some(61)), "{value:?}");
        }
        for name in [&[][..], &[0xff]] {
            let fault = application_id(name).unwrap_err();
            assert_eq!(
                (fault.cause, fault.offending_ie),
                (Cause::MandatoryIeIncorrect, Some(24)),
                "{name:?}"
            );
        }
    }
}
