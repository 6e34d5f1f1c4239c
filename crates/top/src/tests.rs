//! A node's figures on a screen of 80 columns and 24 lines.

use std::path::Path;
use std::time::{Duration, Instant};

use kaido_node::api::{Drop, Port, Status, Worker};
use kaido_node::listing::{Listing, ListingPage, ListingRow};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::draw::draw;
use crate::figures::Figures;
use crate::keys::{Tab, View};
use crate::sampler::Look;

const LISTING: Listing = Listing {
    title: "sessions",
    columns: &["ue", "number"],
    directions: &["uplink"],
    filter: Some("UE address"),
    page: |_: &Path, _, _| Ok(ListingPage::default()),
    detail: Some(|_, key| Ok(format!("all of {key}"))),
};

fn port(name: &str, packets: u64, state: &str) -> Port {
    Port {
        name: name.to_owned(),
        how: "af_xdp".to_owned(),
        mtu: 1500,
        state: state.to_owned(),
        trouble: None,
        rx_packets: packets,
        rx_bytes: packets * 100,
        tx_packets: packets,
        tx_bytes: packets * 125,
        to_kernel: 0,
        dropped: packets / 10,
        kernel_packets: packets / 2,
        kernel_bytes: packets * 50,
    }
}

/// What a node says that long after its start.
fn look(start: Instant, seconds: u64, packets: u64) -> Look {
    let worker = Worker {
        busy_ns: seconds * 250,
        adaptive_ns: seconds * 250,
        interrupt_ns: seconds * 500,
        naps: 0,
        wakeups: 0,
        timeouts: 0,
        ports: Vec::new(),
    };
    let status = Status {
        version: "0.1.0".to_owned(),
        function: "upf".to_owned(),
        node_id: "10.0.4.1".to_owned(),
        pid: 1,
        reload: None,
        uptime_s: seconds,
        workers: 1,
        frame_pages: "small pages".to_owned(),
        frames: 1000,
        frame_bytes: 2048,
        frames_free: 900,
        datapath: "engine".to_owned(),
        datapath_configured: "auto".to_owned(),
        datapath_reason: String::new(),
        ports: vec![port("n3", packets, "up"), port("n6", 0, "up")],
        per_worker: vec![worker],
        more: serde_json::Map::new(),
    };
    let drop = |reason: &str, packets| Drop {
        port: "n3".to_owned(),
        reason: reason.to_owned(),
        meaning: "what that means".to_owned(),
        packets,
    };
    Look {
        at: start + Duration::from_secs(seconds),
        status,
        drops: vec![drop("old", 1_000_000), drop("unknown_teid", packets / 10)],
        list: None,
        detail: None,
    }
}

/// A second with 2000 packets.
fn figures() -> Figures {
    let start = Instant::now();
    let mut figures = Figures::new(look(start, 10, 1000));
    figures.take(Ok(look(start, 11, 3000)));
    figures
}

fn row(ue: &str, number: &str, octets: u64) -> ListingRow {
    ListingRow { key: ue.to_owned(), cells: vec![ue.to_owned(), number.to_owned()], octets: vec![octets] }
}

/// Two looks at a list.
fn listed() -> Figures {
    let start = Instant::now();
    let mut figures = Figures::new(look(start, 10, 1000));
    for (seconds, octets) in [(10, [0, 0, 0]), (12, [1000, 0, 250_000])] {
        let mut look = look(start, seconds, 1000);
        let rows = [
            row("10.0.0.10", "7", octets[0]),
            row("10.0.0.9", "10", octets[1]),
            row("10.0.0.8", "9", octets[2]),
        ];
        look.list = Some(Ok(ListingPage { total: 5, rows: rows.into() }));
        figures.take(Ok(look));
    }
    figures
}

fn screen(figures: &Figures, view: &View) -> String {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| draw(frame, figures, view)).unwrap();
    terminal.backend().to_string()
}

fn press(view: &mut View, figures: &Figures, keys: &[KeyCode]) {
    keys.iter().for_each(|key| view.key(KeyEvent::new(*key, KeyModifiers::NONE), figures));
}

#[test]
fn rates_are_those_between_two_looks() {
    let figures = figures();
    let ports = figures.ports();
    let rates = &ports[0].1;
    assert_eq!((rates.rx_packets, rates.rx_bits, rates.tx_bits), (2000.0, 1_600_000.0, 2_000_000.0));
    assert_eq!((rates.dropped, rates.in_kernel), (200.0, 0.5));
    assert_eq!(figures.workers(), [0.25]);
    let drops = figures.drops();
    assert_eq!(
        (drops[0].drop.reason.as_str(), drops[0].packets, drops[1].packets),
        ("unknown_teid", 200.0, 0.0)
    );
    assert_eq!(figures.alarms(), ["port n3: more than 1 % of the packets are dropped"]);
    assert_eq!(figures.as_json()["ports"][0]["rx_packets_per_second"], 2000.0);
}

#[test]
fn a_node_that_starts_anew_counts_from_zero() {
    let mut figures = figures();
    figures.take(Ok(look(Instant::now(), 1, 50)));
    assert_eq!(figures.ports()[0].1.rx_packets, 0.0);
    figures.take(Err("it is gone".to_owned()));
    assert_eq!(figures.alarms()[0], "it is gone");
}

#[test]
fn what_wants_a_look_is_said() {
    let start = Instant::now();
    let mut said = look(start, 1, 0);
    said.status.frames_free = 99;
    said.status.ports[0].state = "down".to_owned();
    said.status.ports[1].trouble = Some("no carrier".to_owned());
    let alarms = Figures::new(said).alarms();
    assert_eq!(alarms, ["port n3 is down", "port n6: no carrier", "99 of 1000 frames are free"]);
}

#[test]
fn the_overview_fits_a_small_screen() {
    let shown = screen(&figures(), &View::new(Some(LISTING)));
    for wanted in [
        "kaido 0.1.0  upf 10.0.4.1  up 11 s  900 of 1000 frames free",
        " 1 overview   2 drops   3 sessions ",
        "! port n3: more than 1 % of the packets are dropped",
        "n3             up        2.00 k    1.60 M    2.00 k    2.00 M      200      50 %",
        "all                      2.00 k",
        "  0  █████░░░░░░░░░░░░░░░  25 %",
        "unknown_teid                200         300 what that means",
    ] {
        assert!(shown.contains(wanted), "{wanted}\n{shown}");
    }
    // And smaller ones do no harm.
    for (columns, lines) in [(1, 1), (20, 5), (300, 100)] {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        terminal.draw(|frame| draw(frame, &figures(), &View::new(Some(LISTING)))).unwrap();
    }
}

#[test]
fn rows_are_sorted_as_what_they_are() {
    let figures = listed();
    let mut view = View::new(Some(LISTING));
    press(&mut view, &figures, &[KeyCode::Char('3')]);
    let order =
        |view: &View| view.sorted(&figures).iter().map(|rates| rates.row.key.clone()).collect::<Vec<_>>();
    assert_eq!(order(&view), ["10.0.0.8", "10.0.0.10", "10.0.0.9"], "by traffic");
    let shown = screen(&figures, &view);
    assert!(shown.contains("3 of 5 sessions; / filters by UE address"), "{shown}");
    assert!(shown.contains("1.00 Mbit/s") && shown.contains("uplink ▼"), "{shown}");
    press(&mut view, &figures, &[KeyCode::Char('s')]);
    assert_eq!(order(&view), ["10.0.0.8", "10.0.0.9", "10.0.0.10"], "by address");
    press(&mut view, &figures, &[KeyCode::Char('s')]);
    assert_eq!(order(&view), ["10.0.0.10", "10.0.0.8", "10.0.0.9"], "by number");
    press(&mut view, &figures, &[KeyCode::Char('r')]);
    assert_eq!(order(&view), ["10.0.0.9", "10.0.0.8", "10.0.0.10"]);
}

#[test]
fn a_row_is_marked_and_all_of_it_shown() {
    let mut figures = listed();
    let mut view = View::new(Some(LISTING));
    press(&mut view, &figures, &[KeyCode::Char('3'), KeyCode::Down, KeyCode::Enter]);
    let wanted = view.wanted();
    assert_eq!((wanted.detail.as_deref(), wanted.list), (Some("10.0.0.10"), true));
    figures.now.detail = Some(Ok("first\nsecond\nthird".to_owned()));
    press(&mut view, &figures, &[KeyCode::Down]);
    let shown = screen(&figures, &view);
    assert!(!shown.contains("first") && shown.contains("second"), "{shown}");
    press(&mut view, &figures, &[KeyCode::End, KeyCode::End]);
    assert!(screen(&figures, &view).contains("third"));
    press(&mut view, &figures, &[KeyCode::Esc, KeyCode::End, KeyCode::Down]);
    assert_eq!((view.detail.is_none(), view.marked), (true, 2));
}

#[test]
fn a_filter_is_typed() {
    let figures = listed();
    let mut view = View::new(Some(LISTING));
    press(&mut view, &figures, &[KeyCode::Char('/')]);
    assert!(view.typed.is_none(), "there is nothing to filter");
    let typed = ['/', '1', 'q', '?'].map(KeyCode::Char);
    press(&mut view, &figures, &[&[KeyCode::Char('3')], &typed[..], &[KeyCode::Backspace]].concat());
    assert!(screen(&figures, &view).contains("filter: 1q▏"));
    press(&mut view, &figures, &[KeyCode::Enter]);
    assert_eq!((view.wanted().filter.as_str(), view.ends), ("1q", false));
    press(&mut view, &figures, &[KeyCode::Char('/'), KeyCode::Char('x'), KeyCode::Esc]);
    assert_eq!(view.filter, "1q");
    press(&mut view, &figures, &[KeyCode::Esc]);
    assert_eq!(view.filter, "");
}

#[test]
fn keys_turn_pause_help_and_end() {
    let figures = figures();
    let mut view = View::new(None);
    press(&mut view, &figures, &[KeyCode::Char('3')]);
    assert_eq!(view.tab, Tab::Overview, "there is no list");
    press(&mut view, &figures, &[KeyCode::Tab]);
    assert_eq!(view.tab, Tab::Drops);
    press(&mut view, &figures, &[KeyCode::Down, KeyCode::Down, KeyCode::Down]);
    assert_eq!(view.marked, 1);
    press(&mut view, &figures, &[KeyCode::Tab]);
    assert_eq!(view.tab, Tab::Overview);
    press(&mut view, &figures, &[KeyCode::BackTab, KeyCode::Char('p'), KeyCode::Char('?')]);
    let shown = screen(&figures, &view);
    assert!(shown.contains("PAUSED") && shown.contains("Rates are those of the last interval"), "{shown}");
    press(&mut view, &figures, &[KeyCode::Char('q')]);
    assert!(!view.ends, "it ends the help");
    press(&mut view, &figures, &[KeyCode::Char('q')]);
    assert!(view.ends);
}
