//! Compiles the eBPF programs of `bpf/`, and tells the build scripts of crates with programs of their own where the headers are
//! (`DEP_KAIDO_XDP_HEADERS`).

use std::path::Path;
use std::process::ExitCode;

const PROGRAMS: [&str; 4] = ["bpf/port.bpf.c", "bpf/upf.bpf.c", "bpf/speed.bpf.c", "bpf/lost.bpf.c"];

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    let Ok(headers) = std::path::absolute("bpf") else { return ExitCode::FAILURE };
    println!("cargo::metadata=HEADERS={}", headers.display());
    for program in PROGRAMS {
        // The folder: any header.
        if let Err(error) = kaido_bpf_build::compile(Path::new(program), &[Path::new("bpf")]) {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
