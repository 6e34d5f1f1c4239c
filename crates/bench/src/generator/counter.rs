//! Variables as numbers: each a digit that turns with the sequence number, and what the digit stands for.
//!
//! A chain of variables is a number of mixed radix. A cursor that takes every Wth packet adds W to it, digit by digit with
//! carries, so that no packet costs a division, and any packet can be gone to directly.

use arrayvec::ArrayVec;

use super::Refusal;
use crate::stream::{Operation, Tuple, Variable, Width};

/// Most variables of a stream.
pub(crate) const VARIABLES_MAX: usize = 16;

/// What a digit stands for.
#[derive(Clone, Debug)]
enum DigitMeaning {
    /// `first + digit × step`, modulo 2^64.
    Line { first: u64, step: u64 },
    /// One of these.
    List(Box<[u64]>),
    /// A value made of the digit, `min` and up to `span` more.
    Random { min: u64, span: u64, salt: u64 },
}

#[derive(Clone, Debug)]
struct Counter {
    name: String,
    width: Width,
    meaning: DigitMeaning,
    /// Values until the first comes again.
    period: u64,
    /// The counter whose turning moves this one.
    after: Option<usize>,
}

/// All variables of a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters(ArrayVec<Counter, VARIABLES_MAX>);

/// Where all variables stand, and how they move on.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    digits: [u64; VARIABLES_MAX],
    strides: [u64; VARIABLES_MAX],
}

/// Values of variables: a row each, with those of `N` packets that follow each other.
pub(crate) type Rows<const N: usize> = [[u64; N]; VARIABLES_MAX];

/// A word whose bits all depend on all bits of another (splitmix64, Steele and others 2014).
#[inline(always)]
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// The number of a sequence that `salt` names.
#[inline(always)]
pub(crate) fn random(salt: u64, number: u64) -> u64 {
    mix(salt.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// A number below `span + 1`, made of a random word.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // The upper half of a product.
pub(crate) fn scaled(word: u64, span: u64) -> u64 {
    ((u128::from(word) * (u128::from(span) + 1)) >> 64) as u64
}

impl Counters {
    /// The variables and tuples of a template, or what is wrong with them. Equal seeds give equal random values.
    pub(crate) fn new(
        variables: &[Variable],
        tuples: &[Tuple],
        seed: u64,
        refusals: &mut Vec<Refusal>,
    ) -> Self {
        let mut counters = Self::default();
        for (place, variable) in variables.iter().enumerate() {
            let salt = mix(seed ^ mix(place as u64 + 1));
            match counters.read(variable, salt) {
                Ok(counter) => counters.push(counter, &format!("variables[{place}]"), refusals),
                Err((field, message)) => refusals.push((format!("variables[{place}].{field}"), message)),
            }
        }
        for (place, tuple) in tuples.iter().enumerate() {
            let field = format!("tuples[{place}]");
            if tuple.address_first > tuple.address_last || tuple.port_first > tuple.port_last {
                refusals.push((field, "the last comes before the first".to_owned()));
                continue;
            }
            let line = |name: &str, width, first: u64, last: u64, after| Counter {
                name: format!("{}.{name}", tuple.name),
                width,
                meaning: DigitMeaning::Line { first, step: 1 },
                period: last - first + 1,
                after,
            };
            let (first, last) = (tuple.address_first.into(), tuple.address_last.into());
            counters.push(line("address", Width::Four, first, last, None), &field, refusals);
            let after = counters.0.len().checked_sub(1);
            let (first, last) = (tuple.port_first.into(), tuple.port_last.into());
            counters.push(line("port", Width::Two, first, last, after), &field, refusals);
        }
        counters
    }

    fn push(&mut self, counter: Counter, field: &str, refusals: &mut Vec<Refusal>) {
        if self.find(&counter.name).is_some() {
            refusals.push((format!("{field}.name"), format!("`{}` is there already", counter.name)));
        } else if self.0.try_push(counter).is_err() {
            refusals.push((
                field.to_owned(),
                format!("more than {VARIABLES_MAX} variables; a tuple counts as two"),
            ));
        }
    }

    fn read(&self, variable: &Variable, salt: u64) -> Result<Counter, Refusal> {
        let refuse = |field: &str, message: String| Err((field.to_owned(), message));
        let most = variable.width.max();
        let too_large = |value: u64| {
            (value > most).then(|| format!("{value} does not fit into {} bytes", variable.width.bytes()))
        };
        let (meaning, period) = match &variable.operation {
            Operation::Increment { first, last, step } | Operation::Decrement { first, last, step } => {
                let is_up = matches!(variable.operation, Operation::Increment { .. });
                let (low, high) = if is_up { (*first, *last) } else { (*last, *first) };
                if let Some(message) = too_large(high) {
                    return refuse("operation", message);
                }
                if *step == 0 || low > high {
                    return refuse(
                        "operation",
                        format!("from {first} by steps of {step} there is no way to {last}"),
                    );
                }
                let step_signed = if is_up { *step } else { step.wrapping_neg() };
                (
                    DigitMeaning::Line { first: *first, step: step_signed },
                    ((high - low) / step).saturating_add(1),
                )
            }
            Operation::Random { min, max, repeat_after } => {
                if let Some(message) = too_large(*max) {
                    return refuse("operation", message);
                }
                if min > max {
                    return refuse("operation", format!("there is no value between {min} and {max}"));
                }
                let period = if *repeat_after == 0 { u64::MAX } else { *repeat_after };
                (DigitMeaning::Random { min: *min, span: max - min, salt }, period)
            }
            Operation::List(values) => {
                if let Some(message) = values.iter().find_map(|value| too_large(*value)) {
                    return refuse("operation", message);
                }
                if values.is_empty() {
                    return refuse("operation", "a list without values".to_owned());
                }
                (DigitMeaning::List(values.as_slice().into()), values.len() as u64)
            }
        };
        let after = match &variable.after {
            None => None,
            Some(name) => {
                let Some((place, _)) = self.find(name) else {
                    return refuse("after", format!("there is no variable `{name}` before this one"));
                };
                let is_random = |meaning: &DigitMeaning| matches!(meaning, DigitMeaning::Random { .. });
                if is_random(&meaning) || is_random(&self.0[usize::from(place)].meaning) {
                    return refuse("after", "random variables change with every packet".to_owned());
                }
                Some(place.into())
            }
        };
        Ok(Counter { name: variable.name.clone(), width: variable.width, meaning, period, after })
    }

    /// Number and width of a variable.
    pub(crate) fn find(&self, name: &str) -> Option<(u8, Width)> {
        let place = self.0.iter().position(|counter| counter.name == name)?;
        Some((u8::try_from(place).ok()?, self.0[place].width))
    }

    /// Where the variables stand at a sequence number, to be moved on by `stride` packets at a time.
    pub(crate) fn at(&self, sequence: u64, stride: u64) -> Position {
        let mut position = Position { digits: [0; VARIABLES_MAX], strides: [0; VARIABLES_MAX] };
        let mut turns = [(0, 0); VARIABLES_MAX];
        for (place, counter) in self.0.iter().enumerate() {
            let (number, step) = counter.after.map_or((sequence, stride), |after| turns[after]);
            position.digits[place] = number % counter.period;
            position.strides[place] = step % counter.period;
            turns[place] = (number / counter.period, step / counter.period);
        }
        position
    }

    /// The values of all variables for `count` packets, up to `N`, from the position on, which moves behind them.
    #[inline(always)]
    pub(crate) fn step<const N: usize>(&self, position: &mut Position, count: usize, rows: &mut Rows<N>) {
        const { assert!(N <= 64, "a packet has its bit in a word") };
        let count = count.min(N);
        // Of each variable a bit for each packet behind which it has begun anew.
        let mut turns = [0u64; VARIABLES_MAX];
        for (place, counter) in self.0.iter().enumerate() {
            let row = &mut rows[place][..count];
            let (digit, stride) = (&mut position.digits[place], position.strides[place]);
            let carries = counter.after.map_or(0, |after| turns[after & (VARIABLES_MAX - 1)]);
            let end = stride.checked_mul(count as u64).and_then(|way| digit.checked_add(way));
            match end {
                // Most steps reach no end.
                Some(end) if end < counter.period && carries == 0 => {
                    counter.straight(*digit, stride, row);
                    *digit = end;
                }
                _ => {
                    turns[place] = counter.turning(digit, stride, carries, row);
                    counter.meant(row);
                }
            }
        }
    }
}

impl Counter {
    /// Values of digits that go on by `stride` and do not begin anew.
    #[inline(always)]
    fn straight(&self, digit: u64, stride: u64, row: &mut [u64]) {
        let (first, by, has_meaning) = match &self.meaning {
            DigitMeaning::Line { first, step } => {
                (first.wrapping_add(digit.wrapping_mul(*step)), stride.wrapping_mul(*step), true)
            }
            DigitMeaning::List(_) | DigitMeaning::Random { .. } => (digit, stride, false),
        };
        for (number, place) in (0u64..).zip(row.iter_mut()) {
            *place = first.wrapping_add(number.wrapping_mul(by));
        }
        if !has_meaning {
            self.meant(row);
        }
    }

    /// Digits that go on by `stride`, and by one more behind the packets that `carries` names; behind which they begin anew.
    fn turning(&self, digit: &mut u64, stride: u64, carries: u64, row: &mut [u64]) -> u64 {
        let mut turns = 0;
        for (number, place) in row.iter_mut().enumerate() {
            *place = *digit;
            let sum = *digit + stride + (carries >> number & 1);
            let turned = sum >= self.period;
            *digit = if turned { sum - self.period } else { sum };
            turns |= u64::from(turned) << number;
        }
        turns
    }

    /// Makes digits what they stand for.
    #[inline(always)]
    fn meant(&self, row: &mut [u64]) {
        match &self.meaning {
            DigitMeaning::Line { first, step } => {
                row.iter_mut().for_each(|place| *place = first.wrapping_add(place.wrapping_mul(*step)));
            }
            // The digit is below the period, which is the length.
            #[allow(clippy::cast_possible_truncation)]
            DigitMeaning::List(values) => row.iter_mut().for_each(|place| *place = values[*place as usize]),
            DigitMeaning::Random { min, span, salt } => {
                row.iter_mut().for_each(|place| *place = min + scaled(random(*salt, *place), *span));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn variable(name: &str, operation: Operation, after: Option<&str>) -> Variable {
        Variable { name: name.to_owned(), width: Width::Four, operation, after: after.map(str::to_owned) }
    }

    fn made(variables: &[Variable]) -> Counters {
        let mut refusals = Vec::new();
        let counters = Counters::new(variables, &[], 7, &mut refusals);
        assert_eq!(refusals, []);
        counters
    }

    fn values(counters: &Counters, packets: u64) -> Vec<Vec<u64>> {
        let mut position = counters.at(0, 1);
        let mut rows: Rows<1> = [[0]; VARIABLES_MAX];
        (0..packets)
            .map(|_| {
                counters.step(&mut position, 1, &mut rows);
                (0..counters.0.len()).map(|place| rows[place][0]).collect()
            })
            .collect()
    }

    #[test]
    fn variables_go_their_way_and_begin_anew() {
        let counters = made(&[
            variable("up", Operation::Increment { first: 5, last: 10, step: 2 }, None),
            variable("down", Operation::Decrement { first: 3, last: 2, step: 1 }, None),
            variable("list", Operation::List(vec![7, 9]), Some("up")),
        ]);
        let found = values(&counters, 7);
        let column = |place: usize| found.iter().map(|row| row[place]).collect::<Vec<_>>();
        assert_eq!(column(0), [5, 7, 9, 5, 7, 9, 5]);
        assert_eq!(column(1), [3, 2, 3, 2, 3, 2, 3]);
        assert_eq!(column(2), [7, 7, 7, 9, 9, 9, 7]);
    }

    #[test]
    fn tuples_are_an_address_and_then_a_port() {
        let tuple = Tuple {
            name: "client".to_owned(),
            address_first: 10,
            address_last: 11,
            port_first: 5,
            port_last: 6,
        };
        let mut refusals = Vec::new();
        let counters = Counters::new(&[], &[tuple], 7, &mut refusals);
        assert_eq!(refusals, []);
        assert_eq!(values(&counters, 5), [[10, 5], [11, 5], [10, 6], [11, 6], [10, 5]]);
        assert_eq!(counters.find("client.port"), Some((1, Width::Two)));
    }

    #[test]
    fn random_values_are_spread_and_repeat_when_asked() {
        let counters = made(&[
            variable("free", Operation::Random { min: 100, max: 199, repeat_after: 0 }, None),
            variable("again", Operation::Random { min: 0, max: u32::MAX.into(), repeat_after: 3 }, None),
        ]);
        let found = values(&counters, 10_000);
        let mut seen: Vec<u64> = found.iter().map(|row| row[0]).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (100..200).collect::<Vec<_>>());
        assert!(found.windows(4).all(|rows| rows[0][1] == rows[3][1]));
        assert_ne!(found[0][1], found[1][1]);
    }

    proptest! {
        #[test]
        fn strides_and_jumps_give_the_same_values(
            lengths in prop::collection::vec((prop_oneof![1u64..9, 1u64..5000], any::<bool>()), 1..6),
            stride in 1u64..70,
            start in 0u64..1000,
        ) {
            let variables: Vec<_> = lengths.iter().enumerate().map(|(place, (length, chained))| {
                let before = format!("v{}", place.saturating_sub(1));
                let operation = Operation::Increment { first: 0, last: length - 1, step: 1 };
                variable(&format!("v{place}"), operation, (*chained && place > 0).then_some(before.as_str()))
            }).collect();
            let counters = made(&variables);
            let mut moving = counters.at(start, stride);
            let mut rows: Rows<7> = [[0; 7]; VARIABLES_MAX];
            let mut alone: Rows<1> = [[0]; VARIABLES_MAX];
            let mut next = start;
            for count in [1usize, 7, 2, 6, 3, 5, 4, 7, 7] {
                counters.step(&mut moving, count, &mut rows);
                for number in 0..count {
                    let mut there = counters.at(next, stride);
                    counters.step(&mut there, 1, &mut alone);
                    for (row, alone) in rows.iter().zip(&alone).take(counters.0.len()) {
                        prop_assert_eq!(row[number], alone[0]);
                    }
                    next += stride;
                }
                prop_assert_eq!(&moving.digits, &counters.at(next, stride).digits);
            }
        }

        #[test]
        fn scaled_words_stay_in_their_span(word: u64, span: u64) {
            prop_assert!(scaled(word, span) <= span);
        }
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let mut refusals = Vec::new();
        let mut narrow = variable("narrow", Operation::List(vec![256]), None);
        narrow.width = Width::One;
        Counters::new(
            &[
                variable("a", Operation::Increment { first: 2, last: 1, step: 1 }, None),
                variable("b", Operation::Increment { first: 1, last: 2, step: 0 }, None),
                variable("c", Operation::Random { min: 2, max: 1, repeat_after: 0 }, None),
                variable("d", Operation::List(vec![]), None),
                narrow,
                variable("e", Operation::List(vec![1]), Some("nobody")),
                variable("r", Operation::Random { min: 1, max: 2, repeat_after: 0 }, None),
                variable("f", Operation::List(vec![1]), Some("r")),
                variable("r", Operation::List(vec![1]), None),
            ],
            &[],
            1,
            &mut refusals,
        );
        let fields: Vec<_> = refusals.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "variables[0].operation",
                "variables[1].operation",
                "variables[2].operation",
                "variables[3].operation",
                "variables[4].operation",
                "variables[5].after",
                "variables[7].after",
                "variables[8].name",
            ]
        );
    }
}
