//! Compiles the eBPF programs of `bpf/`.

use std::path::Path;
use std::process::ExitCode;

const PROGRAMS: [&str; 4] = ["bpf/steer.bpf.c", "bpf/speed.bpf.c", "bpf/gre.bpf.c", "bpf/lost.bpf.c"];

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    for program in PROGRAMS {
        // The folder: any header.
        if let Err(error) = kaido_bpf_build::compile(Path::new(program), &[Path::new("bpf")]) {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
