//! Verilates the cores of `hdl/rtl` and compiles them, each in the sizes that the tests run. Without verilator the crate builds
//! without them (`cfg(cores)` is not set), and its tests say that they are skipped.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the C++ class, and the parameters that differ from those in the source. `MODELS` in `glue.cpp` and `Core` in
/// `core.rs` have the same names.
const MODELS: [(&str, &[&str]); 3] = [
    ("Gre256", &["-GDATA_W=256"]),
    ("Gre512", &["-GDATA_W=512"]),
    ("Gre256Deep", &["-GDATA_W=256", "-GWINDOW_BEATS=4", "-GPARSE_CLOCKS=2"]),
];
/// In the order in which they need each other.
const SOURCES: [&str; 7] = [
    "gre_pkg.sv",
    "axis_window.sv",
    "gre_counters.sv",
    "gre_regs.sv",
    "gre_parse.sv",
    "gre_decide.sv",
    "gre_decap.sv",
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(cores)");
    println!("cargo::rerun-if-env-changed=KAIDO_HDL_RTL");
    println!("cargo::rerun-if-env-changed=KAIDO_TWIN_MODELS");
    println!("cargo::rerun-if-changed=src/glue.cpp");
    // Mutants of the cores are built from another folder.
    let rtl = env::var_os("KAIDO_HDL_RTL")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hdl/rtl"), PathBuf::from);
    println!("cargo::rerun-if-changed={}", rtl.display());
    let Some(root) = verilator_root() else {
        // What is not there counts as changed: the next build looks again.
        println!("cargo::rerun-if-changed=/usr/bin/verilator");
        println!("cargo::warning=verilator is not here: the cores are not built and their tests are skipped");
        return;
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .include(root.join("include"))
        .include(root.join("include/vltstd"))
        .define("VL_TIME_CONTEXT", None);
    // Mutants are built in one size, and often.
    let wanted = env::var("KAIDO_TWIN_MODELS").ok();
    let is_wanted =
        |name: &str| wanted.as_ref().is_none_or(|wanted| wanted.split(',').any(|one| one == name));
    build.opt_level(if wanted.is_some() { 1 } else { 2 });
    for (name, parameters) in MODELS.into_iter().filter(|(name, _)| is_wanted(name)) {
        build.define(&format!("MODEL_{name}"), None);
        let folder = out.join(name);
        verilate(name, parameters, &rtl, &folder);
        build.include(&folder).files(sources_in(&folder));
    }
    for source in ["verilated.cpp", "verilated_threads.cpp"] {
        build.file(root.join("include").join(source));
    }
    build.file("src/glue.cpp").compile("kaido_twin_cores");
    println!("cargo::rustc-cfg=cores");
}

/// Where the headers of verilator are; `None` without one.
fn verilator_root() -> Option<PathBuf> {
    let output = Command::new("verilator").args(["--getenv", "VERILATOR_ROOT"]).output().ok()?;
    let root = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(root.trim()))
}

fn verilate(name: &str, parameters: &[&str], rtl: &Path, folder: &Path) {
    // What an earlier build left is of other sources.
    let _ = std::fs::remove_dir_all(folder);
    let status = Command::new("verilator")
        .args(["--cc", "-O3", "--x-assign", "unique", "--noassert", "--top-module", "gre_decap"])
        .args(["--prefix", name, "--Mdir"])
        .arg(folder)
        .args(parameters)
        .args(SOURCES.map(|source| rtl.join(source)))
        .status();
    assert!(status.is_ok_and(|status| status.success()), "verilator refused {name} (see above)");
}

fn sources_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut sources: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cpp"))
        .collect();
    sources.sort();
    sources
}
