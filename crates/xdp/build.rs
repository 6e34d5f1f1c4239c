//! Compiles the eBPF programs of `bpf/` with the one clang we pin.

use std::env;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    match compile() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn compile() -> Result<(), String> {
    // The folder: any program, any header.
    for path in ["bpf", "build.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rerun-if-env-changed=KAIDO_CLANG");
    let variable = |name| env::var(name).map_err(|_| format!("{name} is not set; run through cargo"));
    let clang = env::var("KAIDO_CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let out = PathBuf::from(variable("OUT_DIR")?);
    // bpf_helpers.h of the libbpf that libbpf-sys vendors: its build script exports the folder (links = "bpf").
    let libbpf = variable("DEP_BPF_INCLUDE")?;
    // clang for BPF does not look where Debian keeps asm/types.h.
    let multiarch = format!("/usr/include/{}-linux-gnu", variable("CARGO_CFG_TARGET_ARCH")?);
    for program in ["steer", "speed"] {
        let source = format!("bpf/{program}.bpf.c");
        let status = Command::new(&clang)
            .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"])
            .arg(format!("-I{libbpf}"))
            .args(["-idirafter", &multiarch])
            .args(["-c", &source, "-o"])
            .arg(out.join(format!("{program}.bpf.o")))
            .status()
            .map_err(|error| {
                format!("cannot run {clang}: {error}. Install it (`apt-get install clang-19`) or name one in KAIDO_CLANG")
            })?;
        if !status.success() {
            return Err(format!("{clang} could not compile {source} (see above)"));
        }
    }
    Ok(())
}
