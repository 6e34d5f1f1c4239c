//! A server with a node that answers a little, over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32};

use serde_json::{Value, json};

use super::*;
use crate::api::{
    BeginTrace, EndTrace, Flow, GetNode, ListDrops, ListPorts, Ports, Problem, ReadTrace, Reload, Reloaded,
    Role, TraceBegun, TraceOf, TraceRead,
};
use crate::show::ask;

/// A server, and a thread that answers for the node.
struct Rig {
    server: Option<Server>,
    door: Door,
    folder: PathBuf,
    socket: PathBuf,
    metrics: SocketAddr,
    api: SocketAddr,
    /// By role: watch, read, operate.
    tokens: [String; 3],
    control: ControlSocket,
    listener: TcpListener,
}

impl Rig {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("kaido-http-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("control.sock");
        let control = ControlSocket::open(&socket, None).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let metrics = listener.local_addr().unwrap();
        let door = Door::new();
        let tokens = folder.join("tokens");
        let lines =
            [Role::Watch, Role::Read, Role::Operate].map(|role| new_token(role.name(), role).unwrap());
        std::fs::write(&tokens, lines.iter().map(|(_, line)| &**line).collect::<String>()).unwrap();
        std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o644)).unwrap();
        let config = ApiConfig { tokens: Some(tokens), ..ApiConfig::default() };
        let api = ApiSocket::open(TcpListener::bind("127.0.0.1:0").unwrap(), &config).unwrap();
        let api_address = api.listener().local_addr().unwrap();
        let server = Some(serve(&control, &listener, Some(api), &door));
        let tokens = lines.map(|(token, _)| token);
        Self { server, door, folder, socket, metrics, api: api_address, tokens, control, listener }
    }

    /// What comes back for octets at the metrics endpoint, until the server closes.
    fn told(&self, octets: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.metrics).unwrap();
        told(&mut stream, octets)
    }

    /// Head and body of the answer to a GET.
    fn get(&self, target: &str, headers: &str) -> (String, String) {
        let asked = format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n");
        parts(&self.told(asked.as_bytes()))
    }

    /// The status of a request at the API's own socket.
    fn api(&self, method: &str, target: &str, headers: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.api).unwrap();
        let head =
            format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n");
        parts(&told(&mut stream, head.as_bytes()))
    }

    /// The same at the control socket, with any method and a body.
    fn control(&self, method: &str, target: &str, headers: &str, body: &str) -> (String, String) {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        let len = body.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len}\r\n"
        );
        parts(&told(&mut stream, format!("{head}{headers}\r\n{body}").as_bytes()))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn serve(control: &ControlSocket, listener: &TcpListener, api: Option<ApiSocket>, door: &Door) -> Server {
    let (node, questions) = asking::<Asked, Reply>(None);
    let (metrics, scrapes) = asking::<Format, Option<String>>(None);
    std::thread::spawn(move || {
        questions.into_iter().for_each(|question| question.answer(|asked| answer(&asked)));
    });
    std::thread::spawn(move || {
        let text =
            |format| Some(format!("{format:?}\n").repeat(if format == Format::Text { 1 } else { 100 }));
        scrapes.into_iter().for_each(|scrape| scrape.answer(text));
    });
    let stop = Arc::new(AtomicBool::new(false));
    let leaving = Leaving::new(Arc::default(), Vec::new(), door.clone(), stop);
    let routes = crate::api::ROUTES.to_vec();
    let sources =
        Sources { node, metrics, health: Health::default(), leaving, routes, functions: vec!["gre"] };
    let metrics = Some(listener.try_clone().unwrap());
    Server::start(control.listener(), TcpSockets { metrics, api }, sources, door.clone(), true).unwrap()
}

fn answer(asked: &Asked) -> Reply {
    let frame = crate::api::TracedFrame { len: 2, octets: "abcd".to_owned() };
    let packet = crate::api::TracedPacket {
        time_ns: 1,
        seid: String::new(),
        direction: crate::api::IN.to_owned(),
        port: "k0".to_owned(),
        key: String::new(),
        qfi: None,
        rule: None,
        matched_ns: None,
        took_ns: 1,
        verdict: "dropped".to_owned(),
        frame,
        dispositions: Vec::new(),
    };
    let read = TraceRead { of: Vec::new(), lost: 0, packets: vec![packet; 3] };
    asked
        .on(|ListPorts {}| Ok(Ports { ports: Vec::new() }))
        .or_else(|| asked.on(|Reload { dry_run }| Ok(Reloaded { fields: Vec::new(), taken: !dry_run })))
        .or_else(|| {
            asked.on(|BeginTrace { of, .. }| match of {
                TraceOf::Ports(ports) => Ok(TraceBegun { id: 7, ports }),
                TraceOf::Flow(Flow { by, .. }) => Err(Problem::not_found(format!("no flows by {by}"))),
            })
        })
        .or_else(|| asked.on(|ReadTrace { id: _ }| Ok(read)))
        .or_else(|| asked.on(|EndTrace { id: _ }| Ok(())))
        .or_else(|| asked.on(|ListDrops {}| Ok(crate::api::Drops { drops: Vec::new() })))
        .unwrap_or_else(|| Err(Problem::unavailable(format!("{} is asked in vain", asked.name))))
}

fn told(stream: &mut (impl Read + Write), octets: &[u8]) -> String {
    // Who is refused early may not take it all.
    let _ = stream.write_all(octets);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn parts(answer: &str) -> (String, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    (head.to_lowercase(), body.to_owned())
}

fn status(head: &str) -> &str {
    head.get(9..12).unwrap_or_default()
}

#[test]
fn a_command_asks_and_is_answered() {
    let rig = Rig::new();
    assert_eq!(ask(&rig.socket, &ListPorts {}).unwrap(), Ports { ports: Vec::new() });
    assert!(!ask(&rig.socket, &Reload { dry_run: true }).unwrap().taken);
    ask(&rig.socket, &EndTrace { id: 7 }).unwrap();
    let begin =
        BeginTrace { of: TraceOf::Flow(Flow { by: "ue".to_owned(), value: "x".to_owned() }), snap: 0 };
    let refused = ask(&rig.socket, &begin).unwrap_err().to_string();
    assert_eq!(refused, "the node refused the question: no flows by ue");
    let refused = ask(&rig.socket, &GetNode {}).unwrap_err().to_string();
    assert!(refused.contains("get_node is asked in vain"), "{refused}");
    let nobody = ask(&rig.folder.join("nothing"), &GetNode {}).unwrap_err().to_string();
    assert!(nobody.contains("cannot reach a node"), "{nobody}");
}

#[test]
fn what_is_wrong_with_a_request_is_said() {
    let rig = Rig::new();
    for (wanted, method, target, headers, body, why) in [
        ("404", "GET", "/v1/nothing", "", "", "function \\\"gre\\\" of this node has no /v1/nothing"),
        ("404", "GET", "/../../etc/passwd", "", "", "has no /../../etc/passwd"),
        ("405", "DELETE", "/v1/ports", "", "", "no delete of /v1/ports"),
        ("400", "GET", "/v1/ports?a=1", "", "", "a: there is no such parameter"),
        ("400", "DELETE", "/v1/traces/x", "", "", "id: `x` is no number"),
        ("400", "DELETE", "/v1/traces/99999999999", "", "", "invalid value"),
        ("400", "POST", "/v1/traces", "Content-Type: application/json\r\n", "{}", "missing field `of`"),
        ("400", "POST", "/v1/reload", "Content-Type: application/json\r\n", "{", "no json"),
        ("415", "POST", "/v1/reload", "", "{}", "content-type: application/json"),
        ("413", "POST", "/v1/reload", "", &"x".repeat(70_000), "65536"),
        ("503", "GET", "/v1/node", "", "", "in vain"),
    ] {
        let (head, body) = rig.control(method, target, headers, body);
        assert_eq!(status(&head), wanted, "{method} {target}: {head}\n{body}");
        assert!(head.contains("content-type: application/problem+json"), "{head}");
        assert!(body.to_lowercase().contains(why), "{method} {target}: {body}");
        let problem: Problem = serde_json::from_str(&body).unwrap();
        assert_eq!(problem.status.to_string(), wanted);
    }
    let (head, body) = rig.control("DELETE", "/v1/traces/0x7", "", "");
    assert_eq!((status(&head), &*body), ("204", ""));
}

#[test]
fn hostile_requests_are_refused() {
    let rig = Rig::new();
    let status_of = |request: &[u8]| status(&parts(&rig.told(request)).0).to_owned();
    assert_eq!(status_of(b"GET / HTTP/3\r\nHost: a\r\n\r\n"), "400");
    assert_eq!(status_of(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n"), "400");
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(HUGE));
    assert!(["431", "414"].contains(&&*status_of(long.as_bytes())));
    let endless = format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(10_000));
    assert_eq!(status_of(endless.as_bytes()), "431");
    // Two lengths, or a length beside chunks: what is behind is another request to one of two readers (RFC 9112 6.3).
    let smuggled = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    for lengths in ["Content-Length: 4\r\nContent-Length: 5\r\n", "Transfer-Encoding: identity\r\n"] {
        let asked = format!("POST /v1/reload HTTP/1.1\r\nHost: 127.0.0.1\r\n{lengths}\r\nabcd{smuggled}");
        let answers = rig.told(asked.as_bytes());
        assert_eq!(answers.matches("HTTP/1.1").count(), 1, "{answers}");
        assert!(!answers.contains("HTTP/1.1 200"), "{answers}");
    }
    assert_eq!(status(&rig.get("/healthz", "").0), "200");
}

/// Octets of a head that is too long.
const HUGE: usize = 70_000;

#[test]
fn the_metrics_endpoint_shows_figures_only() {
    let rig = Rig::new();
    let (head, body) = rig.get("/metrics", "");
    assert!(head.contains("content-type: text/plain") && body == "Text\n", "{head}\n{body}");
    let (head, body) =
        rig.get("/metrics", "Accept: application/openmetrics-text\r\nAccept-Encoding: gzip\r\n");
    assert!(head.contains("content-encoding: gzip"), "{head}");
    assert!(head.contains("application/openmetrics-text") && body.len() < 1300, "{head}");
    assert_eq!(status(&rig.get("/v1/ports", "").0), "200");
    assert_eq!(status(&rig.get("/v1/upgrade", "").0), "403");
    assert_eq!(status(&rig.get("/v1/capture", "").0), "403");
    let (head, _) =
        parts(&rig.told(b"POST /v1/reload HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"));
    assert_eq!(status(&head), "403");
    let (head, _) =
        parts(&rig.told(b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"));
    assert_eq!(status(&head), "421");
    let (head, body) =
        parts(&rig.told(b"HEAD /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"));
    assert_eq!((status(&head), &*body), ("200", ""));
    for path in ["/", "/healthz", "/readyz"] {
        assert_eq!(status(&rig.get(path, "").0), "200", "{path}");
    }
}

#[test]
fn who_asks_over_tcp_shows_a_token() {
    let rig = Rig::new();
    let (head, body) = rig.api("GET", "/v1/ports", "");
    assert_eq!(status(&head), "401");
    assert!(
        head.contains("www-authenticate: bearer") && body.contains("Authorization: Bearer"),
        "{head} {body}"
    );
    for headers in
        ["Authorization: Bearer nobody\r\n", "Authorization: Basic YTpi\r\n", "Authorization: \r\n"]
    {
        let began = Instant::now();
        assert_eq!(status(&rig.api("GET", "/v1/ports", headers).0), "401", "{headers}");
        assert!(began.elapsed() > Duration::from_millis(400), "guesses take a while");
    }
    for path in ["/", "/healthz", "/readyz", "/v1/openapi.json"] {
        assert_eq!(status(&rig.api("GET", path, "").0), "200", "{path}");
    }
    for (method, path, [watch, read, operate]) in [
        ("GET", "/metrics", ["200", "200", "200"]),
        ("GET", "/v1/ports", ["200", "200", "200"]),
        ("GET", "/v1/upgrade", ["403", "503", "503"]),
        ("POST", "/v1/reload", ["403", "403", "200"]),
        ("DELETE", "/v1/traces/1", ["403", "403", "204"]),
        ("GET", "/v1/capture?count=1", ["403", "403", "200"]),
    ] {
        for (token, wanted) in rig.tokens.iter().zip([watch, read, operate]) {
            let (head, body) = rig.api(method, path, &format!("authorization: bearer {token}\r\n"));
            assert_eq!(status(&head), wanted, "{method} {path}: {body}");
        }
    }
    let (head, _) = rig.api("GET", "/metrics", "");
    assert_eq!(status(&head), "401");
    let mut stream = TcpStream::connect(rig.api).unwrap();
    let asked = format!(
        "GET /v1/ports HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
        rig.tokens[2]
    );
    assert_eq!(status(&parts(&told(&mut stream, asked.as_bytes())).0), "421");
}

#[test]
fn who_has_a_document_is_not_sent_it_again() {
    let rig = Rig::new();
    let (head, body) = rig.get("/v1/ports", "");
    assert_eq!(body, r#"{"ports":[]}"#);
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let (head, body) = rig.get("/v1/ports", &format!("If-None-Match: \"x\", W/{tag}\r\n"));
    assert_eq!((status(&head), &*body), ("304", ""));
    assert_eq!(status(&rig.get("/v1/ports", "If-None-Match: \"x\"\r\n").0), "200");
}

#[test]
fn events_come_again_and_again() {
    let rig = Rig::new();
    let mut stream = TcpStream::connect(rig.metrics).unwrap();
    stream.write_all(b"GET /v1/events?interval_ms=100 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    let mut text = String::new();
    let mut chunk = [0; 4096];
    while text.matches("event: drops").count() < 3 {
        let read = stream.read(&mut chunk).unwrap();
        assert!(read > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&chunk[..read]));
    }
    assert!(text.contains("data: {\"drops\":[]}") && text.contains("event: problem"), "{text}");
    assert_eq!(status(&rig.get("/v1/events?interval_ms=1", "").0), "400");
}

#[test]
fn a_capture_is_a_file_of_so_many_packets() {
    let rig = Rig::new();
    let (head, body) = rig.control("GET", "/v1/capture?port=k0&count=4", "", "");
    assert!(status(&head) == "200" && head.contains("content-type: application/x-pcapng"), "{head}");
    // Enhanced Packet Blocks, in the machine's byte order; the text is lossy, and they are not.
    assert_eq!(body.matches("\u{6}\0\0\0").count(), 4);
    let (head, body) = rig.control("GET", "/v1/capture?by=ue&value=10.0.0.1", "", "");
    assert!(status(&head) == "404" && body.contains("no flows by ue"), "{head} {body}");
    let (head, _) = rig.control("GET", "/v1/capture?by=ue", "", "");
    assert_eq!(status(&head), "400");
}

#[test]
fn clients_that_say_nothing_keep_nobody_out() {
    let rig = Rig::new();
    let mut idle = Vec::new();
    for number in 0..300 {
        let mut tcp = TcpStream::connect(rig.metrics).unwrap();
        if number % 2 == 0 {
            tcp.write_all(b"GET /met").unwrap();
        }
        idle.push((tcp, UnixStream::connect(&rig.socket).unwrap()));
        if number % 50 == 0 {
            assert_eq!(status(&rig.get("/healthz", "").0), "200");
        }
    }
    assert_eq!(ask(&rig.socket, &ListPorts {}).unwrap(), Ports { ports: Vec::new() });
    assert!(rig.door.connections.load(Ordering::Acquire) <= 2 * 64);
}

/// Who connects when it is closed waits for the next server of the same socket; who was here is answered.
#[test]
fn a_closed_server_answers_who_is_here_and_takes_in_nobody() {
    let rig = Rig::new();
    let mut before = TcpStream::connect(rig.metrics).unwrap();
    before.write_all(b"GET /v1/ports HTTP/1.1\r\nHost: 127.0.0.1\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let door = rig.door.clone();
    let closing = std::thread::spawn(move || door.close());
    std::thread::sleep(Duration::from_millis(100));
    let mut after = TcpStream::connect(rig.metrics).unwrap();
    after.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").unwrap();
    assert!(told(&mut before, b"\r\n").contains("{\"ports\":[]}"));
    closing.join().unwrap();
    after.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(after.read(&mut [0; 1]).is_err(), "nobody answers yet");
    let next = serve(&rig.control, &rig.listener, None, &Door::new());
    after.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert!(told(&mut after, b"").ends_with("ok\n"));
    next.stop();
}

#[test]
fn the_document_has_every_path_and_no_loose_end() {
    let document = openapi::document(crate::api::ROUTES);
    let paths = document["paths"].as_object().unwrap();
    for route in crate::api::ROUTES {
        let operation = &paths[route.path][route.method.name().to_lowercase()];
        assert_eq!(operation["operationId"], route.name);
        assert!(operation["summary"].as_str().is_some_and(|text| text.ends_with('.')), "{operation}");
        for name in route.in_path() {
            let parameters = operation["parameters"].as_array().unwrap();
            let named = |parameter: &&Value| parameter["name"] == name && parameter["in"] == "path";
            assert!(parameters.iter().any(|parameter| named(&parameter)), "{name}: {operation}");
        }
    }
    assert!(paths.contains_key("/v1/events") && paths.contains_key("/v1/capture"));
    let body = &paths["/v1/reload"]["post"]["requestBody"];
    assert_eq!(body["content"]["application/json"]["schema"]["additionalProperties"], json!(false));
    // Every reference leads to a schema.
    let text = document.to_string();
    let references = text.split("\"$ref\":\"#/components/schemas/").skip(1);
    for name in references.filter_map(|rest| rest.split('"').next()) {
        assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
    }
}
