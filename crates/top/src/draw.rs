//! What is seen. It fits 80 columns and 24 lines, and uses more where there is more.

use kaido_node::api::Port;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState};

use crate::figures::{DropRate, Figures, PortRates};
use crate::keys::{Tab, View};
use crate::units::{scaled, time};

/// Columns of the bar of a worker.
const BAR: usize = 20;

const HELP: &str = "\
1 2 3, Tab   overview, drops, the list
↑ ↓ j k      the line above, the line below; PgUp, PgDn, Home, End
Enter        all that is known of a row; Esc goes back
/            a filter; Esc takes it away
s, r         sort by the next column; the other way round
p, blank     pause
q, Ctrl-C    end

Rates are those of the last interval. Any key goes on.";

/// Draws all of it.
pub(crate) fn draw(frame: &mut Frame<'_>, figures: &Figures, view: &View) {
    let alarms = figures.alarms();
    let shown = u16::try_from(alarms.len()).unwrap_or(u16::MAX).min(4);
    let areas = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(shown),
        Constraint::Min(0),
        Constraint::Length(1),
    ]);
    let [head, alarm, body, foot] = areas.areas(frame.area());
    heading(frame, head, figures, view);
    let lines: Vec<_> = alarms.iter().map(|alarm| Line::styled(format!("! {alarm}"), warning())).collect();
    frame.render_widget(Paragraph::new(lines), alarm);
    match view.tab {
        Tab::Overview => overview(frame, body, figures),
        Tab::Drops => drops(frame, body, &figures.drops(), view.marked),
        Tab::List => list(frame, body, figures, view),
    }
    frame.render_widget(Paragraph::new(footing(view)), foot);
    if view.has_help {
        help(frame);
    }
}

/// What wants a look.
fn warning() -> Style {
    // https://no-color.org
    let style = Style::new().add_modifier(Modifier::BOLD);
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        style
    } else {
        style.fg(Color::Red)
    }
}

fn strong() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn marked() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

fn heading(frame: &mut Frame<'_>, area: Rect, figures: &Figures, view: &View) {
    let status = &figures.now.status;
    let mut first = format!(
        "kaido {}  {} {}  up {}  {} of {} frames free",
        status.version,
        status.function,
        status.node_id,
        time(status.uptime_s),
        status.frames_free,
        status.frames
    );
    if view.is_paused {
        first.push_str("  PAUSED");
    }
    let tabs = view.tabs().into_iter().enumerate().flat_map(|(at, (tab, title))| {
        let style = if tab == view.tab { marked() } else { Style::new() };
        [Span::styled(format!(" {} {title} ", at + 1), style), Span::raw(" ")]
    });
    frame.render_widget(Paragraph::new(vec![Line::styled(first, strong()), Line::from_iter(tabs)]), area);
}

fn footing(view: &View) -> Line<'static> {
    match (&view.typed, view.tab) {
        (Some(typed), _) => Line::styled(format!("filter: {typed}▏"), strong()),
        (None, Tab::List) if view.detail.is_some() => Line::styled("↑↓ go on  Esc back  q end", dim()),
        (None, Tab::List) => {
            Line::styled("↑↓ mark  Enter all of it  / filter  s sort  r reverse  ? help  q end", dim())
        }
        _ => Line::styled("Tab next  p pause  ? help  q end", dim()),
    }
}

/// Numbers stand on the right.
fn number(text: String) -> Cell<'static> {
    Cell::new(Line::from(text).alignment(Alignment::Right))
}

fn heads(left: &[&'static str], right: &[&'static str]) -> Row<'static> {
    let right = right.iter().map(|name| number((*name).to_owned()));
    Row::new(left.iter().map(|name| Cell::new(*name)).chain(right)).style(strong())
}

fn overview(frame: &mut Frame<'_>, area: Rect, figures: &Figures) {
    let ports = figures.ports();
    let workers = figures.workers();
    let lines = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let areas = Layout::vertical([
        Constraint::Length(lines(ports.len()).saturating_add(3)),
        Constraint::Length(lines(workers.len()).saturating_add(2)),
        Constraint::Min(0),
    ]);
    let [of_ports, of_workers, of_drops] = areas.spacing(0).areas(area);
    frame.render_widget(port_table(&ports), of_ports);
    let bars = workers.iter().enumerate().map(|(number, busy)| worker_line(number, *busy));
    let text: Vec<_> =
        std::iter::once(Line::styled("workers, the time that they are busy", strong())).chain(bars).collect();
    frame.render_widget(Paragraph::new(text), of_workers);
    drops(frame, of_drops, &figures.drops(), usize::MAX);
}

fn port_table(ports: &[(&Port, PortRates)]) -> Table<'static> {
    let row = |name: String, state: String, rates: &PortRates| {
        let cells = [
            scaled(rates.rx_packets),
            scaled(rates.rx_bits),
            scaled(rates.tx_packets),
            scaled(rates.tx_bits),
            scaled(rates.dropped),
            format!("{:.0} %", rates.in_kernel * 100.0),
        ];
        Row::new([Cell::new(name), Cell::new(state)].into_iter().chain(cells.map(number)))
    };
    let sum = ports.iter().fold(PortRates::default(), |sum, (_, rates)| PortRates {
        rx_packets: sum.rx_packets + rates.rx_packets,
        rx_bits: sum.rx_bits + rates.rx_bits,
        tx_packets: sum.tx_packets + rates.tx_packets,
        tx_bits: sum.tx_bits + rates.tx_bits,
        dropped: sum.dropped + rates.dropped,
        in_kernel: sum.in_kernel + rates.in_kernel * rates.rx_packets,
        to_kernel: 0.0,
    });
    let in_kernel = if sum.rx_packets > 0.0 { sum.in_kernel / sum.rx_packets } else { 0.0 };
    let sum = PortRates { in_kernel, ..sum };
    let rows = ports.iter().map(|(port, rates)| {
        let row = row(port.name.clone(), port.state.clone(), rates);
        if port.state == "up" { row } else { row.style(warning()) }
    });
    let rows = rows.chain([row("all".to_owned(), String::new(), &sum).style(strong())]);
    let widths = [
        Constraint::Min(8),
        Constraint::Length(6),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(8),
        Constraint::Length(9),
    ];
    let right = ["rx pkt/s", "rx bit/s", "tx pkt/s", "tx bit/s", "drop/s", "in kernel"];
    Table::new(rows, widths).header(heads(&["port", "state"], &right))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // From 0 to the length of the bar.
fn worker_line(number: usize, busy: f64) -> Line<'static> {
    let full = (busy * BAR as f64).round() as usize;
    let bar = format!("{}{}", "█".repeat(full.min(BAR)), "░".repeat(BAR.saturating_sub(full)));
    Line::from(format!("{number:>3}  {bar}  {:.0} %", busy * 100.0))
}

/// The drops with a line marked, where there is one.
fn drops(frame: &mut Frame<'_>, area: Rect, drops: &[DropRate<'_>], line: usize) {
    if drops.is_empty() {
        frame.render_widget(Paragraph::new("nothing was dropped"), area);
        return;
    }
    let rows = drops.iter().map(|rate| {
        let cells = [rate.drop.port.clone(), rate.drop.reason.clone()].map(Cell::new);
        let numbers = [scaled(rate.packets), rate.drop.packets.to_string()].map(number);
        let row = Row::new(cells.into_iter().chain(numbers).chain([Cell::new(rate.drop.meaning.clone())]));
        if rate.packets > 0.0 { row.style(warning()) } else { row }
    });
    let widths = [
        Constraint::Length(8),
        Constraint::Length(22),
        Constraint::Length(8),
        Constraint::Length(11),
        Constraint::Fill(1),
    ];
    let head = ["drops", "reason"].map(Cell::new).into_iter();
    let head =
        head.chain(["a second", "packets"].map(|name| number(name.to_owned()))).chain([Cell::new("meaning")]);
    let table = Table::new(rows, widths).header(Row::new(head).style(strong())).row_highlight_style(marked());
    let mut state = TableState::new().with_selected((line != usize::MAX).then_some(line));
    frame.render_stateful_widget(table, area, &mut state);
}

/// The rows of a function's list, or all of one.
fn list(frame: &mut Frame<'_>, area: Rect, figures: &Figures, view: &View) {
    let Some(listing) = view.listing else { return };
    if let Some((key, first)) = &view.detail {
        let text = match &figures.now.detail {
            Some(Ok(text)) => text.clone(),
            Some(Err(why)) => why.clone(),
            None => format!("{key} …"),
        };
        let lines: Vec<_> = text.lines().skip(*first).map(|line| Line::from(line.to_owned())).collect();
        frame.render_widget(Paragraph::new(lines), area);
        return;
    }
    let total = match &figures.now.list {
        Some(Ok(page)) => format!("{} of {} {}", page.rows.len(), page.total, listing.title),
        Some(Err(why)) => why.clone(),
        None => "…".to_owned(),
    };
    let filter = match (view.filter.as_str(), listing.filter) {
        ("", Some(by)) => format!("; / filters by {by}"),
        ("", None) => String::new(),
        (filter, _) => format!("; only {filter}"),
    };
    let [of_total, of_rows] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(format!("{total}{filter}")), of_total);
    let rows = view.sorted(figures);
    let is_sorted =
        |column: usize| if column == view.sort { if view.is_reversed { " ▼" } else { " ▲" } } else { "" };
    let names = listing.columns.iter().chain(listing.directions).enumerate();
    let head = names.map(|(column, name)| format!("{name}{}", is_sorted(column)));
    let rows = rows.into_iter().map(|rates| {
        let cells = rates.row.cells.iter().map(|cell| Cell::new(cell.clone()));
        Row::new(cells.chain(rates.bits.iter().map(|bits| Cell::new(format!("{}bit/s", scaled(*bits))))))
    });
    let widths = listing
        .columns
        .iter()
        .map(|_| Constraint::Fill(2))
        .chain(listing.directions.iter().map(|_| Constraint::Fill(1)));
    let table = Table::new(rows, widths).header(Row::new(head).style(strong())).row_highlight_style(marked());
    let mut state = TableState::new().with_selected(Some(view.marked));
    frame.render_stateful_widget(table, of_rows, &mut state);
}

fn help(frame: &mut Frame<'_>) {
    let height = u16::try_from(HELP.lines().count()).unwrap_or(u16::MAX).saturating_add(2);
    let [row] = Layout::vertical([Constraint::Length(height)])
        .flex(ratatui::layout::Flex::Center)
        .areas(frame.area());
    let [area] = Layout::horizontal([Constraint::Length(72)]).flex(ratatui::layout::Flex::Center).areas(row);
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" keys ")), area);
}
