//! Compiles the eBPF program of `bpf/`, with the headers of `kaido-xdp`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    match kaido_bpf_build::compile_function(Path::new("bpf/gre.bpf.c")) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
