//! What was checked, what was expected, what was found.

use std::fmt;

#[derive(Debug)]
struct Row {
    what: String,
    expected: String,
    found: String,
}

/// Rows in the order in which they were checked.
#[derive(Debug, Default)]
pub(super) struct Table(Vec<Row>);

impl Table {
    /// A check: both are to be the same.
    pub(super) fn equal<T: fmt::Display>(&mut self, what: &str, expected: T, found: T) {
        let (expected, found) = (expected.to_string(), found.to_string());
        self.0.push(Row { what: what.to_owned(), expected, found });
    }

    /// Checks.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Checks that found something else.
    pub(super) fn differing(&self) -> usize {
        self.0.iter().filter(|row| row.expected != row.found).count()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widest = |of: fn(&Row) -> &str, title: &str| {
            let cells = self.0.iter().map(|row| of(row).chars().count());
            cells.chain([title.len()]).max().unwrap_or(0)
        };
        let what = widest(|row| &row.what, "check");
        let expected = widest(|row| &row.expected, "expected");
        let found = widest(|row| &row.found, "found");
        writeln!(f, "{:what$}  {:>expected$}  {:>found$}", "check", "expected", "found")?;
        writeln!(f, "{}", "-".repeat(what + expected + found + 14))?;
        for row in &self.0 {
            let verdict = if row.expected == row.found { "ok" } else { "DIFFERS" };
            writeln!(f, "{:what$}  {:>expected$}  {:>found$}  {verdict}", row.what, row.expected, row.found)?;
        }
        let differing = self.differing();
        writeln!(f, "{} checks, {} ok, {differing} differ", self.len(), self.len() - differing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted_and_shown() {
        let mut table = Table::default();
        table.equal("sessions", 3, 3);
        table.equal("bytes out of n6", 100, 99);
        assert_eq!((table.len(), table.differing()), (2, 1));
        let shown = table.to_string();
        assert!(shown.contains("DIFFERS") && shown.contains("2 checks, 1 ok, 1 differ"), "{shown}");
    }
}
