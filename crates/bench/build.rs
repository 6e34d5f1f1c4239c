//! Compiles the baseline's eBPF program. Without a compiler the crate builds all the same, and the baseline is reported
//! as skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kaido_bpf_build::{Error, compile};

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    let root = Path::new("../../bench/xdp-map-chain");
    match compile(&root.join("map_chain.bpf.c"), &[&root.join("map_chain.h")]) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error @ Error::Compiler { .. }) => leave_out(&error),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// An empty object, and why it is empty.
fn leave_out(reason: &Error) -> ExitCode {
    println!("cargo::warning=the map-chain baseline is left out: {reason}");
    println!("cargo::rustc-env=KAIDO_BENCH_NO_MAP_CHAIN=it was not compiled: {reason}");
    let Some(folder) = std::env::var_os("OUT_DIR") else { return ExitCode::FAILURE };
    match fs::write(PathBuf::from(folder).join("map_chain.bpf.o"), []) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
