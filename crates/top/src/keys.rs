//! What is looked at, and how keys change that.

use std::cmp::Ordering;
use std::net::IpAddr;

use kaido_node::listing::Listing;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::figures::{Figures, RowRates};
use crate::sampler::Wanted;

/// Lines that a page key goes on by.
const PAGE: usize = 10;

/// What a screen shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tab {
    #[default]
    Overview,
    Drops,
    List,
}

/// What is looked at.
#[derive(Default)]
pub(crate) struct View {
    pub(crate) listing: Option<Listing>,
    pub(crate) tab: Tab,
    /// The line that is marked, from 0.
    pub(crate) marked: usize,
    /// What rows must meet.
    pub(crate) filter: String,
    /// The filter while it is typed.
    pub(crate) typed: Option<String>,
    /// The column that rows are sorted by; behind the columns come the directions.
    pub(crate) sort: usize,
    pub(crate) is_reversed: bool,
    /// The row whose details are shown, and the first of their lines.
    pub(crate) detail: Option<(String, usize)>,
    pub(crate) is_paused: bool,
    pub(crate) has_help: bool,
    pub(crate) ends: bool,
}

impl View {
    pub(crate) fn new(listing: Option<Listing>) -> Self {
        // By what comes in first, the most first.
        let sort = listing.map_or(0, |listing| listing.columns.len());
        Self { listing, sort, is_reversed: true, ..Self::default() }
    }

    /// The screens that there are.
    pub(crate) fn tabs(&self) -> Vec<(Tab, &'static str)> {
        let list = self.listing.map(|listing| (Tab::List, listing.title));
        [(Tab::Overview, "overview"), (Tab::Drops, "drops")].into_iter().chain(list).collect()
    }

    /// What the node is to be asked for it.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            filter: self.filter.clone(),
            detail: self.detail.as_ref().map(|(key, _)| key.clone()),
            list: self.tab == Tab::List,
        }
    }

    /// The rows in their order.
    pub(crate) fn sorted<'f>(&self, figures: &'f Figures) -> Vec<&'f RowRates> {
        let mut rows: Vec<_> = figures.rows.iter().collect();
        rows.sort_by(|one, other| {
            let order = compare(one, other, self.sort);
            let order = if self.is_reversed { order.reverse() } else { order };
            order.then_with(|| one.row.key.cmp(&other.row.key))
        });
        rows
    }

    /// A key was pressed.
    pub(crate) fn key(&mut self, key: KeyEvent, figures: &Figures) {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            self.ends = true;
        } else if self.has_help {
            self.has_help = false;
        } else if self.typed.is_some() {
            self.type_key(key.code);
        } else {
            self.look(key.code, figures);
        }
    }

    fn type_key(&mut self, key: KeyCode) {
        let Some(typed) = &mut self.typed else { return };
        match key {
            KeyCode::Char(letter) => typed.push(letter),
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Enter => {
                self.filter = self.typed.take().unwrap_or_default();
                self.marked = 0;
            }
            KeyCode::Esc => self.typed = None,
            _ => {}
        }
    }

    fn look(&mut self, key: KeyCode, figures: &Figures) {
        match key {
            KeyCode::Char('q') => self.ends = true,
            KeyCode::Char('?' | 'h') => self.has_help = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char(digit @ '1'..='3') => self.turn_to(usize::from(digit as u8 - b'1')),
            KeyCode::Tab | KeyCode::Right => self.turn_to(self.place() + 1),
            KeyCode::BackTab | KeyCode::Left => self.turn_to(self.place() + self.tabs().len() - 1),
            KeyCode::Esc if self.detail.is_some() => self.detail = None,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up | KeyCode::Char('k') => self.go(figures, |at| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.go(figures, |at| at.saturating_add(1)),
            KeyCode::PageUp => self.go(figures, |at| at.saturating_sub(PAGE)),
            KeyCode::PageDown => self.go(figures, |at| at.saturating_add(PAGE)),
            KeyCode::Home => self.go(figures, |_| 0),
            KeyCode::End => self.go(figures, |_| usize::MAX),
            _ if self.tab == Tab::List => self.list(key, figures),
            _ => {}
        }
    }

    /// Keys of a list.
    fn list(&mut self, key: KeyCode, figures: &Figures) {
        let Some(listing) = self.listing else { return };
        match key {
            KeyCode::Char('/') if listing.filter.is_some() => self.typed = Some(self.filter.clone()),
            KeyCode::Char('s') => {
                self.sort = (self.sort + 1) % (listing.columns.len() + listing.directions.len());
                // Rates are looked at from the top, names from the first.
                self.is_reversed = self.sort >= listing.columns.len();
            }
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Enter if listing.detail.is_some() => {
                let rows = self.sorted(figures);
                self.detail = rows.get(self.marked).map(|rates| (rates.row.key.clone(), 0));
            }
            _ => {}
        }
    }

    fn place(&self) -> usize {
        self.tabs().iter().position(|(tab, _)| *tab == self.tab).unwrap_or_default()
    }

    fn turn_to(&mut self, place: usize) {
        let tabs = self.tabs();
        if let Some((tab, _)) = tabs.get(place % tabs.len())
            && (place < tabs.len() || place > self.place())
        {
            (self.tab, self.marked, self.detail) = (*tab, 0, None);
        }
    }

    /// Moves the mark, or the details.
    fn go(&mut self, figures: &Figures, to: impl Fn(usize) -> usize) {
        if let Some((_, first)) = &mut self.detail {
            let lines = match &figures.now.detail {
                Some(Ok(text)) => text.lines().count(),
                _ => 0,
            };
            *first = to(*first).min(lines.saturating_sub(1));
            return;
        }
        let lines = match self.tab {
            Tab::Overview => 0,
            Tab::Drops => figures.now.drops.len(),
            Tab::List => figures.rows.len(),
        };
        self.marked = to(self.marked).min(lines.saturating_sub(1));
    }
}

/// How two rows stand by a column.
fn compare(one: &RowRates, other: &RowRates, column: usize) -> Ordering {
    let columns = one.row.cells.len();
    let rate = |rates: &RowRates| rates.bits.get(column - columns).copied().unwrap_or_default();
    let cell = |rates: &RowRates| rates.row.cells.get(column).cloned().unwrap_or_default();
    if column >= columns {
        return rate(one).total_cmp(&rate(other));
    }
    let (one, other) = (cell(one), cell(other));
    let numbers = one.parse::<u64>().ok().zip(other.parse::<u64>().ok());
    let addresses = one.parse::<IpAddr>().ok().zip(other.parse::<IpAddr>().ok());
    match (numbers, addresses) {
        (Some((one, other)), _) => one.cmp(&other),
        (_, Some((one, other))) => one.cmp(&other),
        _ => one.cmp(&other),
    }
}
