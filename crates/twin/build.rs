//! Verilates the cores of `hdl/rtl` and compiles them, each in the sizes that the tests run. Without verilator the crate builds
//! without them (`cfg(cores)` is not set), and its tests say that they are skipped.

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// A core in a size.
struct Model {
    /// Of its C++ class.
    name: &'static str,
    top: &'static str,
    /// Those that differ from the source's.
    parameters: &'static [&'static str],
    /// Of its ports in glue.cpp.
    ports: &'static str,
    /// In the order in which they need each other.
    sources: &'static [&'static [&'static str]],
}

const GRE: &[&[&str]] = &[
    &["net_pkg.sv", "gre_pkg.sv"],
    STREAMS,
    &["sum_tree.sv", "gre_regs.sv", "gre_parse.sv", "gre_sum.sv", "gre_shift.sv"],
    &["gre_match.sv", "gre_inner.sv", "gre_decide.sv", "gre_verdict.sv", "gre_decap.sv"],
];
const TUNNEL: &[&[&str]] = &[
    &["net_pkg.sv", "ip_pkg.sv", "gre_tunnel_pkg.sv"],
    &[
        "axis_window.sv",
        "axis_words.sv",
        "axil_slave.sv",
        "event_counters.sv",
        "em_ram_sdp.sv",
        "axis_frame_fifo.sv",
    ],
    &["sum_tree.sv", "gre_sum.sv", "gre_tunnels.sv", "gre_encap.sv"],
];
const GTPU: &[&str] = &["axis_words.sv", "axil_split.sv", "gtpu_regs.sv", "gtpu_lookup.sv"];
const GTPU_PACKAGES: &[&str] = &["net_pkg.sv", "ip_pkg.sv", "gtpu_pkg.sv"];
const STREAMS: &[&str] = &["axis_window.sv", "axis_frame_end.sv", "axil_slave.sv", "event_counters.sv"];
const TABLE: &[&str] = &[
    "em_pkg.sv",
    "em_ram.sv",
    "em_ram_sdp.sv",
    "em_hash.sv",
    "em_counters.sv",
    "em_lookup.sv",
    "em_engine.sv",
    "em_core.sv",
    "em_arbiter.sv",
    "em_axil.sv",
    "em_table.sv",
];
const DECAP: &[&[&str]] = &[GTPU_PACKAGES, STREAMS, TABLE, GTPU, &["gtpu_decap.sv"]];
const ENCAP: &[&[&str]] = &[GTPU_PACKAGES, STREAMS, TABLE, GTPU, &["gtpu_encap.sv"]];
const UPF: &[&[&str]] = &[
    GTPU_PACKAGES,
    STREAMS,
    TABLE,
    GTPU,
    &["gtpu_decap.sv", "gtpu_encap.sv", "session_usage.sv"],
    &["axis_skid.sv", "axis_merge.sv", "axis_frame_fifo.sv", "upf_steer.sv", "upf_regs.sv", "upf_top.sv"],
];
const ONE_PORT: &str = "Simulated";
const TWO_PORTS: &str = "SimulatedPorts";

/// A model's place here is its number.
const MODELS: [Model; 13] = [
    Model { name: "Gre256", top: "gre_decap", parameters: &["-GDATA_W=256"], ports: ONE_PORT, sources: GRE },
    Model { name: "Gre512", top: "gre_decap", parameters: &["-GDATA_W=512"], ports: ONE_PORT, sources: GRE },
    Model {
        name: "Gre256Deep",
        top: "gre_decap",
        parameters: &["-GDATA_W=256", "-GWINDOW_BEATS=4", "-GPIPELINED=1'b1"],
        ports: ONE_PORT,
        sources: GRE,
    },
    Model {
        name: "Decap256",
        top: "gtpu_decap",
        parameters: &["-GDATA_W=256"],
        ports: ONE_PORT,
        sources: DECAP,
    },
    Model {
        name: "Decap512",
        top: "gtpu_decap",
        parameters: &["-GDATA_W=512"],
        ports: ONE_PORT,
        sources: DECAP,
    },
    Model {
        name: "Encap256",
        top: "gtpu_encap",
        parameters: &["-GDATA_W=256"],
        ports: ONE_PORT,
        sources: ENCAP,
    },
    Model {
        name: "Encap512",
        top: "gtpu_encap",
        parameters: &["-GDATA_W=512"],
        ports: ONE_PORT,
        sources: ENCAP,
    },
    Model { name: "Upf256", top: "upf_top", parameters: &["-GDATA_W=256"], ports: TWO_PORTS, sources: UPF },
    Model { name: "Upf512", top: "upf_top", parameters: &["-GDATA_W=512"], ports: TWO_PORTS, sources: UPF },
    Model {
        name: "Gre256Pipelined",
        top: "gre_decap",
        parameters: &["-GDATA_W=256", "-GPIPELINED=1'b1"],
        ports: ONE_PORT,
        sources: GRE,
    },
    Model {
        name: "Gre512Pipelined",
        top: "gre_decap",
        parameters: &["-GDATA_W=512", "-GPIPELINED=1'b1"],
        ports: ONE_PORT,
        sources: GRE,
    },
    Model {
        name: "Tunnel256",
        top: "gre_encap",
        parameters: &["-GDATA_W=256"],
        ports: ONE_PORT,
        sources: TUNNEL,
    },
    Model {
        name: "Tunnel512",
        top: "gre_encap",
        parameters: &["-GDATA_W=512"],
        ports: ONE_PORT,
        sources: TUNNEL,
    },
];

/// Models that only the soak builds, with `KAIDO_HDL_ALL`: other forms of cores that others of them are of too. They are a third
/// of the C++.
const SOAK: [&str; 4] = ["Gre256Deep", "Gre256Pipelined", "Upf512", "Tunnel512"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(cores)");
    println!("cargo::rerun-if-env-changed=KAIDO_HDL_ALL");
    println!("cargo::rerun-if-env-changed=KAIDO_HDL_RTL");
    println!("cargo::rerun-if-env-changed=KAIDO_TWIN_MODELS");
    println!("cargo::rerun-if-env-changed=KAIDO_TWIN_LIBRARY");
    println!("cargo::rerun-if-changed=src/glue.cpp");
    // The bench of mutants is linked once, with a library of this folder that hdl/mutants/run.py makes anew for each.
    if let Some(folder) = env::var_os("KAIDO_TWIN_LIBRARY") {
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=dylib=kaido_twin_cores");
        println!("cargo::rustc-cfg=cores");
        return;
    }
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
    println!("cargo::rustc-cfg=cores");
    // Clippy has build scripts of its own, and links nothing: it would compile all cores once more.
    if env::var("RUSTC_WORKSPACE_WRAPPER").is_ok_and(|wrapper| wrapper.contains("clippy")) {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .warnings(false)
        // Nobody steps through it, and it takes a quarter of the compiler's time.
        .debug(false)
        .include(root.join("include"))
        .include(root.join("include/vltstd"))
        .define("VL_TIME_CONTEXT", None);
    // Mutants are built in one size, and often.
    let wanted = env::var("KAIDO_TWIN_MODELS").ok();
    let is_long = env::var_os("KAIDO_HDL_ALL").is_some();
    let left: &[&str] = if is_long || wanted.is_some() { &[] } else { &SOAK };
    println!("cargo::rustc-env=KAIDO_TWIN_LEFT={}", left.join(","));
    let is_wanted = |name: &str| match &wanted {
        Some(wanted) => wanted.split(',').any(|one| one == name),
        None => !left.contains(&name),
    };
    // To optimise more takes longer than it saves, but in the soak.
    build.opt_level(if is_long { 2 } else { 1 });
    let (mut headers, mut cases, mut once, mut often) =
        (String::new(), String::new(), Vec::new(), Vec::new());
    for (number, model) in MODELS.iter().enumerate().filter(|(_, model)| is_wanted(model.name)) {
        let name = model.name;
        let folder = out.join(name);
        verilate(model, &rtl, &folder);
        build.include(&folder);
        let (slow, fast): (Vec<_>, Vec<_>) =
            sources_in(&folder).into_iter().partition(|path| path.to_string_lossy().contains("__Slow"));
        once.push(together(&folder, "once", &slow));
        often.push(together(&folder, "often", &fast));
        let _ = writeln!(headers, "#include \"{name}.h\"");
        let _ = writeln!(cases, "case {number}: return new {}<{name}>;", model.ports);
    }
    let models =
        format!("#ifdef KAIDO_TWIN_HEADERS\n{headers}#endif\n#ifdef KAIDO_TWIN_CASES\n{cases}#endif\n");
    assert!(std::fs::write(out.join("models.inc"), models).is_ok(), "{} is not writable", out.display());
    build.include(&out);
    often.extend(["verilated.cpp", "verilated_threads.cpp"].map(|source| root.join("include").join(source)));
    often.push(PathBuf::from("src/glue.cpp"));
    build.objects(objects(&build, once, often)).compile("kaido_twin_cores");
}

/// Compiles sources. Half of what verilator writes runs once, when a model is made: to optimise that takes longer than it ever runs.
fn objects(build: &cc::Build, once: Vec<PathBuf>, often: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut unoptimised = build.clone();
    unoptimised.opt_level(0).files(once);
    let mut optimised = build.clone();
    optimised.files(often);
    thread::scope(|scope| {
        let once = scope.spawn(|| unoptimised.compile_intermediates());
        let mut all = optimised.compile_intermediates();
        match once.join() {
            Ok(more) => all.extend(more),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        all
    })
}

/// Where the headers of verilator are; `None` without one.
fn verilator_root() -> Option<PathBuf> {
    let output = Command::new("verilator").args(["--getenv", "VERILATOR_ROOT"]).output().ok()?;
    let root = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(root.trim()))
}

fn verilate(model: &Model, rtl: &Path, folder: &Path) {
    // What an earlier build left is of other sources.
    let _ = std::fs::remove_dir_all(folder);
    let status = Command::new("verilator")
        .args(["--cc", "-O3", "--x-assign", "unique", "--noassert", "--top-module", model.top])
        .args(["--prefix", model.name, "--Mdir"])
        .arg(folder)
        .args(model.parameters)
        .args(model.sources.iter().copied().flatten().map(|source| rtl.join(source)))
        .status();
    assert!(status.is_ok_and(|status| status.success()), "verilator refused {} (see above)", model.name);
}

/// One source of several: half of what the compiler does for each is reading verilator's headers.
fn together(folder: &Path, name: &str, sources: &[PathBuf]) -> PathBuf {
    let all = folder.join(format!("{name}.cpp"));
    let text: String = sources
        .iter()
        .fold(String::new(), |text, source| text + &format!("#include \"{}\"\n", source.display()));
    assert!(std::fs::write(&all, text).is_ok(), "{} is not writable", all.display());
    all
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
