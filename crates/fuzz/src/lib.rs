//! What the fuzz targets in `tests/` share: how an input is read, and how inputs are tried without a fuzzer.
//!
//! ```text
//!  cargo test      corpus/TARGET.tar ─▶ as they are, then changed and joined by a fixed seed ─▶ target
//!  scripts/fuzz    corpus/TARGET.tar ─▶ bolero, libFuzzer, guided by coverage               ─▶ target
//! ```
//!
//! An input is a [`Script`]: octets read as operations, so that any octets are a valid script, and a script cut or
//! joined to another is one too.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// An input, read from its front. Numbers are big-endian.
#[derive(Clone, Copy, Debug)]
pub struct Script<'i>(&'i [u8]);

impl<'i> Script<'i> {
    /// The script that these octets are.
    pub const fn new(input: &'i [u8]) -> Self {
        Self(input)
    }

    /// The next octet, or nothing at the end.
    pub const fn byte(&mut self) -> Option<u8> {
        let Some((&first, rest)) = self.0.split_first() else { return None };
        self.0 = rest;
        Some(first)
    }

    /// The next octet, or 0 at the end.
    pub fn byte_or_zero(&mut self) -> u8 {
        self.byte().unwrap_or_default()
    }

    /// The next two octets; those that are missing are 0.
    pub fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte_or_zero(), self.byte_or_zero()])
    }

    /// The next octets, as many as the two before them say or as there are.
    pub fn octets(&mut self) -> &'i [u8] {
        let len = usize::from(self.short()).min(self.0.len());
        let (octets, rest) = self.0.split_at(len);
        self.0 = rest;
        octets
    }

    /// What is left.
    pub const fn rest(&mut self) -> &'i [u8] {
        let rest = self.0;
        self.0 = &[];
        rest
    }
}

/// `SplitMix64`: the same changes in every run.
struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.number() % (bound as u64)).unwrap_or(0)
    }

    fn octet(&mut self) -> u8 {
        self.number().to_le_bytes()[0]
    }
}

/// Longest input that is made here.
const LEN_MAX: usize = 4096;

/// The committed inputs of a target, in the order of their names.
///
/// # Errors
/// Those of reading the archive.
pub fn corpus(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target).with_extension("tar");
    let mut inputs = Vec::new();
    for entry in tar::Archive::new(File::open(archive)?).entries()? {
        let mut input = Vec::new();
        entry?.read_to_end(&mut input)?;
        inputs.push(input);
    }
    Ok(inputs)
}

/// Tries a target's corpus and `count` inputs made from it, the same in every run.
///
/// # Panics
/// When `run` does; the input is printed before. When the target has no corpus.
pub fn run_bounded(target: &str, count: u64, mut run: impl FnMut(&[u8])) {
    let corpus = match corpus(target) {
        Ok(inputs) if !inputs.is_empty() => inputs,
        other => panic!("corpus/{target}.tar has inputs: {other:?}"),
    };
    let mut tried = |input: &[u8]| {
        let shown = Shown(input);
        run(input);
        std::mem::forget(shown);
    };
    corpus.iter().for_each(|input| tried(input));
    let mut random = Random(0x006b_6169_646f);
    for _ in 0..count {
        tried(&changed(&corpus, &mut random));
    }
}

/// Prints an input if the target panics on it.
struct Shown<'i>(&'i [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let octets: String = self.0.iter().map(|octet| format!("{octet:02x}")).collect();
        #[allow(clippy::print_stderr)] // Whoever reads the panic needs it.
        {
            eprintln!("input: {octets}");
        }
    }
}

/// An input of the corpus, or two joined, with some octets changed, put in or left out.
fn changed(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    if random.below(2) == 0 {
        let other = &corpus[random.below(corpus.len())];
        input.truncate(random.below(input.len() + 1));
        input.extend_from_slice(&other[random.below(other.len() + 1)..]);
    }
    for _ in 0..random.below(8) {
        let at = random.below(input.len() + 1);
        match random.below(5) {
            0 => input.insert(at, random.octet()),
            1 if at < input.len() => drop(input.remove(at)),
            2 if at < input.len() => input[at] ^= 1 << random.below(8),
            3 if at < input.len() => input[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            _ if at < input.len() => input[at] = random.octet(),
            _ => {}
        }
    }
    input.truncate(LEN_MAX);
    input
}

/// Makes the test of a target: `fuzz_target!(name, count, run)` tries the corpus and `count` inputs made from it, or,
/// built by `scripts/fuzz`, what libFuzzer finds.
#[macro_export]
macro_rules! fuzz_target {
    ($name:ident, $count:expr, $run:expr) => {
        #[test]
        #[allow(unexpected_cfgs)] // `fuzzing` is set by `scripts/fuzz` alone.
        fn $name() {
            #[cfg(fuzzing)]
            bolero::check!().for_each(|input: &[u8]| $run(input));
            #[cfg(not(fuzzing))]
            $crate::run_bounded(stringify!($name), $count, $run);
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_octets_are_a_script() {
        let mut script = Script::new(&[7, 0, 2, 8, 9, 1, 0, 5]);
        assert_eq!((script.byte(), script.octets(), script.short()), (Some(7), &[8, 9][..], 0x100));
        assert_eq!((script.octets(), script.rest(), script.byte()), (&[][..], &[][..], None));
    }

    #[test]
    fn inputs_are_the_same_in_every_run() {
        let corpus = [vec![1, 2, 3], vec![], vec![9; 300]];
        let made = |seed| {
            let mut random = Random(seed);
            (0..100).map(|_| changed(&corpus, &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(made(1), made(1));
        assert_ne!(made(1), made(2));
    }
}
