//! What no single field of a router's file can tell.

use std::collections::HashSet;
use std::net::SocketAddr;

use kaido_node::config::Findings;
use kaido_node::config::QueueMode;
use kaido_node::config::{Datapath, Driver, Spanned};

use super::{DiskConfig, FaceConfig, MulticastField, NdnConfig};
use crate::face::FaceUri;

/// Everything that is wrong with a router's sections and fields.
pub(crate) fn check(config: &NdnConfig, findings: &mut Findings) {
    let datapath = &config.base.node.datapath;
    if !matches!(datapath.get_ref(), Datapath::Auto | Datapath::Engine) {
        findings.add(
            datapath.span(),
            "node.datapath",
            "an NDN router forwards in the engine",
            "remove it, or write datapath = \"engine\"",
        );
    }
    let queue_mode = &config.base.node.queue_mode;
    if *queue_mode.get_ref() != QueueMode::Rss {
        findings.add(
            queue_mode.span(),
            "node.queue_mode",
            "workers of an NDN router take packets by name, and hand them over themselves",
            "remove it, or write queue_mode = \"rss\"",
        );
    }
    balance(config, findings);
    for port in &config.base.ports {
        let driver = &port.get_ref().driver;
        if !matches!(driver.get_ref(), Driver::AfXdp | Driver::AfPacket | Driver::Tap) {
            let help = "use driver = \"af_xdp\", \"af_packet\" or \"tap\"";
            findings.add(driver.span(), "port.driver", "Ethernet faces are not made over it so far", help);
        }
    }
    let ndn = &config.ndn;
    findings.range(&ndn.prefixes_max, "ndn.prefixes_max");
    findings.range(&ndn.routes_max, "ndn.routes_max");
    findings.range(&ndn.pending_max, "ndn.pending_max");
    findings.range(&ndn.faces_max, "ndn.faces_max");
    findings.range(&ndn.dead_nonces, "ndn.dead_nonces");
    findings.range(&ndn.cs.packets, "ndn.cs.packets");
    findings.range(&ndn.cs.memory_mib, "ndn.cs.memory_mib");
    if let Some(disk) = &ndn.cs.disk {
        self::disk(config, disk, findings);
    }
    findings.range(&ndn.listen.udp_mtu, "ndn.listen.udp_mtu");
    if let Some(share) = &ndn.pending_per_host {
        findings.range_to(share, "ndn.pending_per_host", *ndn.pending_max.get_ref());
    }
    findings.range(&ndn.listen.on_demand_max, "ndn.listen.on_demand_max");
    findings.range(&ndn.listen.on_demand_per_host, "ndn.listen.on_demand_per_host");
    findings.range(&ndn.listen.applications_max, "ndn.listen.applications_max");
    findings.range(&ndn.listen.idle_s, "ndn.listen.idle_s");
    findings.range(&ndn.listen.queue_kib, "ndn.listen.queue_kib");
    listen(config, findings);
    let mut ends = HashSet::new();
    for face in &ndn.faces {
        self::face(config, face.get_ref(), &mut ends, findings);
    }
    for route in &ndn.routes {
        let to = &route.get_ref().to;
        if !ends.contains(&to.get_ref().0) {
            let help = "add a [[ndn.face]] whose remote is the same";
            findings.add(to.span(), "ndn.route.to", format!("no face leads to {}", to.get_ref().0), help);
        }
    }
    if let Some(bytes) = config.base.node.frame_bytes.as_ref().filter(|bytes| *bytes.get_ref() < 4096) {
        let message = "a router has frames of 4096 bytes: names of packets want to be in one piece";
        findings.add(bytes.span(), "node.frame_bytes", message, "remove it");
    }
    let mut chosen = HashSet::new();
    for strategy in &ndn.strategies {
        if !chosen.insert(&strategy.get_ref().prefix.0) {
            let message = "the prefix has a strategy already";
            findings.add(strategy.span(), "ndn.strategy.prefix", message, "give each prefix one strategy");
        }
        let name = &strategy.get_ref().strategy;
        if strategy.get_ref().choice().is_none() {
            let known = "best-route, multicast, asf and round-robin";
            let message = format!("there is no strategy `{}`", name.get_ref());
            findings.add(name.span(), "ndn.strategy.strategy", message, format!("there are {known}"));
        }
    }
}

fn balance(config: &NdnConfig, findings: &mut Findings) {
    let balance = &config.ndn.balance;
    findings.range(&balance.sample, "ndn.balance.sample");
    findings.range(&balance.hot_percent, "ndn.balance.hot_percent");
    findings.range(&balance.calm_s, "ndn.balance.calm_s");
    let (hot, cool) = (*balance.hot_percent.get_ref(), &balance.cool_percent);
    if hot > 0 && *cool.get_ref() >= hot {
        let message = format!("{} percent is not below hot_percent, which is {hot}", cool.get_ref());
        let help = "about half of hot_percent keeps names from turning to and fro";
        findings.add(cool.span(), "ndn.balance.cool_percent", message, help);
    }
}

fn disk(config: &NdnConfig, disk: &Spanned<DiskConfig>, findings: &mut Findings) {
    let DiskConfig { path, size_mib, packets, readers, reads_max, gather_us } = disk.get_ref();
    if path.as_os_str().is_empty() {
        let help = "give a folder that nobody else uses, such as \"/var/cache/kaido\"";
        findings.add(disk.span(), "ndn.cs.disk.path", "no folder is said", help);
    }
    if *config.ndn.cs.packets.get_ref() == 0 {
        let help = "give ndn.cs.packets a number, or remove [ndn.cs.disk]";
        let message = "what goes to the disk is what memory gives up, and memory keeps nothing";
        findings.add(config.ndn.cs.packets.span(), "ndn.cs.packets", message, help);
    }
    findings.range(size_mib, "ndn.cs.disk.size_mib");
    if let Some(packets) = packets {
        findings.range(packets, "ndn.cs.disk.packets");
    }
    findings.range(readers, "ndn.cs.disk.readers");
    findings.range(reads_max, "ndn.cs.disk.reads_max");
    findings.range(gather_us, "ndn.cs.disk.gather_us");
}

fn listen(config: &NdnConfig, findings: &mut Findings) {
    let listen = &config.ndn.listen;
    udp_on_ports(config, findings);
    let MulticastField(interfaces) = listen.multicast.get_ref();
    let mut known = HashSet::new();
    for interface in interfaces.iter().filter(|interface| interface.is_empty() || !known.insert(*interface)) {
        let message = format!("{interface:?} is no interface, or is there twice");
        let help = "give names of interfaces, or an IPv4 address of each";
        findings.add(listen.multicast.span(), "ndn.listen.multicast", message, help);
    }
    let nowhere = listen.unix.as_os_str().is_empty() && listen.tcp.is_empty() && listen.udp.is_empty();
    if nowhere && config.base.ports.is_empty() {
        let help =
            "give ndn.listen.unix a path, ndn.listen.tcp or ndn.listen.udp an address, or add a [[port]]";
        findings.add(0..0, "ndn.listen", "nothing is listened to", help);
    }
}

fn udp_on_ports(config: &NdnConfig, findings: &mut Findings) {
    let (listen, field) = (&config.ndn.listen, "ndn.listen.udp_on_ports");
    let drivers = config.base.ports.iter().map(|port| *port.get_ref().driver.get_ref());
    let has_port = drivers.into_iter().any(|driver| matches!(driver, Driver::AfXdp | Driver::AfPacket));
    let mut known: Vec<SocketAddr> = Vec::new();
    for spanned in &listen.udp_on_ports {
        let (address, span) = (*spanned.get_ref(), spanned.span());
        let ip = address.ip();
        let is_station =
            !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && address.port() != 0;
        let is_taken = |own: &SocketAddr| {
            own.port() == address.port()
                && (own.ip() == ip || (own.ip().is_unspecified() && own.is_ipv4() == address.is_ipv4()))
        };
        let (message, help) = if !is_station {
            (
                format!("{address} is no address of a port"),
                "give an address of a port's interface, with a port number",
            )
        } else if known.contains(&address) {
            (format!("{address} is there twice"), "once is enough")
        } else if known.first().is_some_and(|first| first.port() != address.port()) {
            (format!("{address} has another port number than the others"), "give all the same, such as 6363")
        } else if listen.udp.iter().any(is_taken) {
            let help = "an address is taken by a socket of the host or by a port of the engine: leave it out of one of them";
            (format!("ndn.listen.udp takes {address}, too"), help)
        } else if has_port {
            known.push(address);
            continue;
        } else {
            (
                "there is no port to take UDP from".to_owned(),
                "add a [[port]] with driver = \"af_xdp\" or \"af_packet\"",
            )
        };
        findings.add(span, field, message, help);
    }
}

fn face(config: &NdnConfig, face: &FaceConfig, ends: &mut HashSet<FaceUri>, findings: &mut Findings) {
    let remote = &face.remote;
    if !ends.insert(remote.get_ref().0.clone()) {
        let message = format!("two faces lead to {}", remote.get_ref().0);
        findings.add(remote.span(), "ndn.face.remote", message, "one is enough");
    }
    if let Some(mtu) = &face.mtu {
        findings.range(mtu, "ndn.face.mtu");
    }
    if face.reliability && remote.get_ref().0.is_group() {
        let message = format!("{} is a group, of which nobody acknowledges", remote.get_ref().0);
        findings.add(remote.span(), "ndn.face.reliability", message, "leave it out, or write one neighbour");
    }
    match &remote.get_ref().0 {
        FaceUri::Udp(address) => {
            let on_ports = config.ndn.listen.udp_on_ports.iter().map(Spanned::get_ref);
            let mut locals = config.ndn.listen.udp.iter().chain(on_ports);
            let listens = locals.any(|local| local.is_ipv4() == address.is_ipv4());
            if !listens {
                let family = if address.is_ipv4() { "0.0.0.0:6363" } else { "[::]:6363" };
                let help = format!("write udp = [\"{family}\"] into [ndn.listen]: it is sent from there");
                findings.add(remote.span(), "ndn.face.remote", "no UDP socket of its family is open", help);
            }
        }
        FaceUri::Tcp(_) => {}
        FaceUri::Ether(_) => {
            let ports = config.base.ports.iter().map(|port| port.get_ref().name.get_ref());
            let names: Vec<_> = ports.collect();
            let local = face.local.as_ref().map(|local| &local.get_ref().0);
            if !matches!(local, Some(FaceUri::Dev(name)) if names.contains(&name)) {
                let help = if names.is_empty() {
                    "add a [[port]] and write local = \"dev://\" and its name".to_owned()
                } else {
                    format!("write local = \"dev://PORT\"; the ports are {names:?}")
                };
                let (at, message) = match &face.local {
                    Some(local) => (local.span(), format!("{} is no port", local.get_ref().0)),
                    None => (remote.span(), "the port of the face is not said".to_owned()),
                };
                findings.add(at, "ndn.face.local", message, help);
            }
        }
        other => {
            let message = format!("faces to {}:// are made by who is there", other.schema());
            findings.add(remote.span(), "ndn.face.remote", message, "use udp4, udp6, tcp4, tcp6 or ether");
        }
    }
}

#[cfg(test)]
pub(in crate::node) mod tests {
    use std::path::Path;

    use miette::Diagnostic;

    use super::*;
    use crate::node::config::AdmitName;
    use kaido_node::config::FilePart;
    use kaido_node::file::Config;
    use kaido_node::function::NetworkFunction;

    const FUNCTIONS: &[&dyn NetworkFunction] = &[&crate::NdnFunction];

    fn read(more: &str) -> Result<NdnConfig, String> {
        whole(&format!("function = \"ndn\"\n{more}"))
    }

    /// A whole file.
    pub(in crate::node) fn whole(text: &str) -> Result<NdnConfig, String> {
        let text = text.to_owned();
        match Config::parse(Path::new("kaido.toml"), text.clone(), FUNCTIONS) {
            Ok(_) => FilePart::whole(&text).and_then(NdnConfig::read).map_err(|error| error.to_string()),
            Err(fault) => {
                Err(format!("{fault}\n{}", fault.help().map(|help| help.to_string()).unwrap_or_default()))
            }
        }
    }

    const ON_PORT: &str = "[[port]]\nname = \"a\"\ndriver = \"af_packet\"\ninterface = \"a\"\n[ndn.listen]\n";

    #[test]
    fn udp_on_a_port_is_enough_for_a_face() {
        let more = "udp = [\"[::]:6363\"]\nudp_on_ports = [\"192.0.2.1:6363\"]\n[[ndn.face]]\nremote = \"udp4://192.0.2.9\"\n";
        assert_eq!(read(&format!("{ON_PORT}{more}")).unwrap().ndn.listen.udp_on_ports.len(), 1);
    }

    #[test]
    fn groups_are_heard_on_one_interface_or_several() {
        for (given, wanted) in [("\"192.0.2.1\"", 1), ("[\"eth0\", \"192.0.2.1\"]", 2), ("[]", 0)] {
            let config = read(&format!("[ndn.listen]\nmulticast = {given}\n")).unwrap();
            assert_eq!(config.ndn.listen.multicast.get_ref().0.len(), wanted);
        }
    }

    #[test]
    fn the_shortest_file_listens_where_applications_look() {
        let config = read("").unwrap();
        assert_eq!(config.ndn.listen.unix, Path::new("/run/nfd/nfd.sock"));
        assert_eq!((config.ndn.management.local.len(), config.ndn.routes.len()), (5, 0));
    }

    #[test]
    fn a_whole_file_is_read() {
        let config = read(
            "[ndn]\nregions = [\"/site\"]\nunsolicited = \"cache_local\"\n[ndn.cs]\npackets = 0\nadmit = \"asked_again\"\n\
             [ndn.listen]\nudp = [\"0.0.0.0:6363\"]\ntcp = [\"[::]:6363\"]\n\
             [ndn.management]\nlocal = [\"rib\", \"strategy-choice\"]\n\
             [[ndn.face]]\nremote = \"udp4://192.0.2.1\"\nmtu = 1400\nreliability = true\n\
             [[ndn.route]]\nprefix = \"/a/b\"\nto = \"udp4://192.0.2.1:6363\"\ncost = 4\n\
             [[ndn.strategy]]\nprefix = \"/a\"\nstrategy = \"multicast\"\n",
        )
        .unwrap();
        assert_eq!(config.ndn.balance.settings(), crate::balance::BalanceSettings::default());
        let route = config.ndn.routes[0].get_ref();
        assert!(config.ndn.faces[0].get_ref().reliability);
        assert_eq!(config.ndn.cs.admit, AdmitName::AskedAgain);
        assert_eq!((route.prefix.0.len(), route.cost, route.inherit, route.capture), (6, 4, true, false));
    }

    #[test]
    fn what_cannot_be_is_said_with_its_field() {
        for (text, wanted) in [
            ("[node]\ndatapath = \"xdp\"\n", "node.datapath: an NDN router"),
            ("[node]\nworkers = 65\n", "node.workers: 65 is out of range"),
            ("[node]\nqueue_mode = \"shared\"\n", "node.queue_mode: workers of an NDN router take"),
            ("[ndn.balance]\nsample = 0\n", "ndn.balance.sample: 0 is out of range"),
            ("[ndn.balance]\ncool_percent = 20\n", "ndn.balance.cool_percent: 20 percent is not below"),
            (
                "[[port]]\nname = \"a\"\ndriver = \"dpdk\"\ndevice = \"0000:00:01.0\"\n",
                "port.driver: Ethernet faces are not made",
            ),
            ("[node]\nframe_bytes = 2048\n", "node.frame_bytes: a router has frames of 4096 bytes"),
            ("[ndn]\npending_max = 1\n", "ndn.pending_max: 1 is out of range"),
            ("[ndn]\nregions = [\"site\"]\n", "\"site\" is no name"),
            ("[ndn.cs.disk]\npath = \"\"\nsize_mib = 64\n", "ndn.cs.disk.path: no folder is said"),
            ("[ndn.cs.disk]\npath = \"/a\"\n", "missing field `size_mib`"),
            ("[ndn.cs.disk]\npath = \"/a\"\nsize_mib = 1\n", "ndn.cs.disk.size_mib: 1 is out of range"),
            (
                "[ndn.cs]\npackets = 0\n[ndn.cs.disk]\npath = \"/a\"\nsize_mib = 64\n",
                "ndn.cs.packets: what goes to the disk is what memory gives up",
            ),
            ("[ndn.listen]\nunix = \"\"\n", "ndn.listen: nothing is listened to"),
            ("[ndn.listen]\nunix_mode = \"abc\"\n", "\"abc\" is no mode: give octal digits"),
            ("[ndn.listen]\non_demand_per_host = 0\n", "ndn.listen.on_demand_per_host: 0 is out of range"),
            (
                "[ndn]\npending_max = 100\npending_per_host = 101\n",
                "ndn.pending_per_host: 101 is out of range",
            ),
            ("[ndn.listen]\nudp_mtu = 100\n", "ndn.listen.udp_mtu"),
            ("[ndn.listen]\nmulticast = 7\n", "the name of an interface or its IPv4 address"),
            (
                "[ndn.listen]\nmulticast = [\"a\", \"b\", \"a\"]\n",
                "ndn.listen.multicast: \"a\" is no interface, or is there twice",
            ),
            ("[ndn.listen]\nmulticast = \"\"\n", "ndn.listen.multicast: \"\" is no interface"),
            (
                "[ndn.listen]\nudp_on_ports = [\"192.0.2.1:6363\"]\n",
                "ndn.listen.udp_on_ports: there is no port to take UDP from",
            ),
            (
                "[[port]]\nname = \"a\"\ndriver = \"tap\"\n[ndn.listen]\nudp_on_ports = [\"192.0.2.1:6363\"]\n",
                "there is no port to take UDP from",
            ),
            (
                &format!("{ON_PORT}udp_on_ports = [\"0.0.0.0:6363\"]\n"),
                "ndn.listen.udp_on_ports: 0.0.0.0:6363 is no address of a port",
            ),
            (&format!("{ON_PORT}udp_on_ports = [\"[2001:db8::1]:0\"]\n"), "is no address of a port"),
            (
                &format!("{ON_PORT}udp_on_ports = [\"192.0.2.1:6363\", \"192.0.2.1:6363\"]\n"),
                "192.0.2.1:6363 is there twice",
            ),
            (
                &format!("{ON_PORT}udp_on_ports = [\"192.0.2.1:6363\", \"192.0.2.2:6364\"]\n"),
                "192.0.2.2:6364 has another port number",
            ),
            (
                &format!("{ON_PORT}udp = [\"0.0.0.0:6363\"]\nudp_on_ports = [\"192.0.2.1:6363\"]\n"),
                "ndn.listen.udp takes 192.0.2.1:6363, too",
            ),
            ("[[ndn.face]]\nremote = \"udp4://192.0.2.1\"\n", "no UDP socket of its family"),
            (
                "[[ndn.face]]\nremote = \"ether://[01:00:5e:00:17:aa]\"\nreliability = true\n",
                "ndn.face.reliability: ether://[01:00:5e:00:17:aa] is a group",
            ),
            ("[[ndn.face]]\nremote = \"unix:///a\"\n", "faces to unix:// are made by who is there"),
            ("[[ndn.face]]\nremote = \"ether://[02:00:00:00:00:01]\"\n", "the port of the face is not said"),
            ("[[ndn.face]]\nremote = \"http://a\"\n", "is not the URI of a face"),
            (
                "[[ndn.face]]\nremote = \"tcp4://192.0.2.1\"\n[[ndn.face]]\nremote = \"tcp4://192.0.2.1:6363\"\n",
                "two faces lead to tcp4://192.0.2.1:6363",
            ),
            ("[[ndn.route]]\nprefix = \"/a\"\nto = \"tcp4://192.0.2.1\"\n", "ndn.route.to: no face leads to"),
            ("[[ndn.strategy]]\nprefix = \"/a\"\nstrategy = \"worst\"\n", "there is no strategy `worst`"),
            ("[ndn.management]\nlocal = [\"all\"]\n", "expected one of `faces`, `fib`"),
            ("[ndn.management]\nlocal = \"all\"\n", "ndn.management.local: it takes: list of \"faces\""),
            (
                "[[ndn.face]]\nremote = \"ether://[02:00:00:00:00:01]\"\nlocal = \"dev://a\"\n",
                "ndn.face.local: dev://a is no port",
            ),
            (
                "[[ndn.strategy]]\nprefix = \"/a\"\nstrategy = \"asf\"\n\
                 [[ndn.strategy]]\nprefix = \"/a\"\nstrategy = \"multicast\"\n",
                "ndn.strategy.prefix: the prefix has a strategy already",
            ),
            (
                &format!("[ndn.listen]\nunix = \"/{}\"\n", "x".repeat(107)),
                "ndn.listen.unix: 108 octets are too many",
            ),
        ] {
            let said = read(text).err().unwrap_or_default();
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
    }
}
