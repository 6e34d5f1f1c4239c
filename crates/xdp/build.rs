//! Compiles the eBPF program of `bpf/`, and tells the build scripts of crates with programs of their own where the headers are
//! (`DEP_KAIDO_XDP_HEADERS`).

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    let Ok(headers) = std::path::absolute("bpf") else { return ExitCode::FAILURE };
    println!("cargo::metadata=HEADERS={}", headers.display());
    // The folder: any header.
    match kaido_bpf_build::compile(Path::new("bpf/port.bpf.c"), &[Path::new("bpf")]) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
