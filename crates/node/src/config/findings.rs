//! What is wrong with a file, as it is found.

use std::ops::Range;

use super::Spanned;
use super::fault::Fault;
use super::schema::{Field, FunctionSchema, Sections};

/// What is wrong, as it is found.
pub struct Findings {
    /// What was found, in its order.
    pub faults: Vec<Fault>,
    /// What the file may have.
    sections: Sections,
}

impl Findings {
    /// Nothing so far, of a file of that function.
    pub fn new(function: &FunctionSchema) -> Self {
        Self { faults: Vec::new(), sections: function.file() }
    }

    /// What the file may have.
    pub(super) const fn sections(&self) -> &Sections {
        &self.sections
    }

    /// Adds one: at a place, of a field, what is wrong, and how to mend it.
    pub fn add(
        &mut self,
        at: Range<usize>,
        field: impl Into<String>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.faults.push(Fault { at, field: field.into(), message: message.into(), help: help.into() });
    }

    /// Whether a number is in the range that its schema has.
    pub fn range<T: Copy + Into<u64>>(&mut self, value: &Spanned<T>, field: &str) {
        let bounds = self.sections.field(field).and_then(Field::bounds);
        debug_assert!(bounds.is_some(), "{field} has no range");
        if let Some(bounds) = bounds {
            self.between(value, field, bounds);
        }
    }

    /// Whether a number is in the range of its schema, of which another field has the upper bound.
    pub fn range_to<T: Copy + Into<u64>>(&mut self, value: &Spanned<T>, field: &str, highest: T) {
        let lowest = self.sections.field(field).and_then(Field::lowest);
        self.between(value, field, (lowest.unwrap_or(0), highest.into()));
    }

    fn between<T: Copy + Into<u64>>(&mut self, value: &Spanned<T>, field: &str, (low, high): (u64, u64)) {
        let found: u64 = (*value.get_ref()).into();
        if found < low || found > high {
            let message = format!("{found} is out of range");
            self.add(value.span(), field, message, format!("{low} to {high} are allowed"));
        }
    }
}
