//! Compiles the eBPF programs of `bpf/`, with the headers of `kaido-xdp`.

use std::path::Path;
use std::process::ExitCode;

const PROGRAMS: [&str; 3] = ["bpf/upf.bpf.c", "bpf/speed.bpf.c", "bpf/lost.bpf.c"];

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    for program in PROGRAMS {
        if let Err(error) = kaido_bpf_build::compile_function(Path::new(program)) {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
