//! `kaido bench flame`: folds what `perf script` prints, and draws it.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};
use inferno::flamegraph;
use miette::{Context, IntoDiagnostic, miette};

/// Reads the output of `perf script` (samples of the CPU's clock, each for its nanoseconds); writes folded stacks, an SVG, or both.
#[derive(Args, Clone, Debug)]
pub(super) struct FlameArgs {
    /// What `perf script` printed
    #[arg(long, value_name = "FILE")]
    perf: PathBuf,
    /// Keep only stacks with a function whose name contains this, from it on
    #[arg(long, value_name = "NAME")]
    below: Option<String>,
    /// Write the folded stacks, a line for each
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,
    /// Draw the flame graph
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Its title
    #[arg(long, value_name = "TEXT", default_value = "Kaido")]
    title: String,
}

pub(super) fn run(args: &FlameArgs) -> miette::Result<()> {
    let script =
        std::fs::read(&args.perf).into_diagnostic().wrap_err_with(|| args.perf.display().to_string())?;
    let folded = fold(&script).into_diagnostic().wrap_err_with(|| args.perf.display().to_string())?;
    let stacks = args.below.as_deref().map_or_else(|| folded.clone(), |name| below(&folded, name));
    if stacks.is_empty() {
        let name = args.below.as_deref().unwrap_or_default();
        return Err(miette!("{}: no stack has a function named {name:?}", args.perf.display()));
    }
    if let Some(path) = &args.folded {
        write(path, stacks.as_bytes())?;
    }
    if let Some(path) = &args.svg {
        let svg = draw(&stacks, &args.title).into_diagnostic()?;
        write(path, &svg)?;
    }
    Ok(())
}

fn fold(script: &[u8]) -> std::io::Result<String> {
    let mut folded = Vec::new();
    Folder::from(Options::default()).collapse(BufReader::new(script), &mut folded)?;
    Ok(String::from_utf8_lossy(&folded).into_owned())
}

/// Stacks from the first function on whose name contains `name`.
fn below(folded: &str, name: &str) -> String {
    let cut = folded.lines().filter_map(|line| {
        let (stack, count) = line.rsplit_once(' ')?;
        let mut functions = stack.split(';').skip_while(|function| !function.contains(name)).peekable();
        functions.peek()?;
        Some(format!("{} {count}\n", functions.collect::<Vec<_>>().join(";")))
    });
    cut.collect()
}

fn draw(stacks: &str, title: &str) -> std::io::Result<Vec<u8>> {
    let mut options = flamegraph::Options::default();
    title.clone_into(&mut options.title);
    "ns".clone_into(&mut options.count_name);
    options.deterministic = true;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, stacks.lines(), &mut svg).map_err(std::io::Error::other)?;
    Ok(svg)
}

fn write(path: &Path, bytes: &[u8]) -> miette::Result<()> {
    let written = File::create(path).and_then(|file| {
        let mut file = BufWriter::new(file);
        file.write_all(bytes)?;
        file.flush()
    });
    written.into_diagnostic().wrap_err_with(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "\
kaido 100 1.000001:     250000 cpu-clock:
\t55d0 parse+0x1 (/usr/bin/kaido)
\t55d1 kaido_bench::point::lane::drive+0x2 (/usr/bin/kaido)
\t55d2 main+0x3 (/usr/bin/kaido)

kaido 100 1.000002:     250000 cpu-clock:
\t55d0 write+0x1 (/usr/bin/kaido)
\t55d2 main+0x3 (/usr/bin/kaido)

";

    #[test]
    fn stacks_are_folded_and_cut_where_asked() {
        let folded = fold(SCRIPT.as_bytes()).unwrap();
        assert!(folded.lines().any(|line| line.ends_with("main;write 250000")), "{folded}");
        assert_eq!(below(&folded, "point::lane::drive"), "kaido_bench::point::lane::drive;parse 250000\n");
        assert_eq!(below(&folded, "nowhere"), "");
        let svg = String::from_utf8(draw(&folded, "a title").unwrap()).unwrap();
        assert!(svg.contains("a title") && svg.contains("parse"));
    }
}
