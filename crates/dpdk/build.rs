//! With the feature `dpdk`: compiles the shim, writes the bindings, and names the libraries.

use std::process::ExitCode;

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    if let Err(fault) = dpdk::build() {
        eprintln!("error: {fault}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

#[cfg(feature = "dpdk")]
mod dpdk {
    use std::path::PathBuf;

    /// What is called and what it takes; the rest of DPDK stays out.
    const FUNCTIONS: &[&str] = &[
        "kaido_.*",
        "rte_eal_(init|cleanup|iova_mode)",
        "rte_eth_dev_(get_port_by_name|get_name_by_port|info_get|configure|adjust_nb_rx_tx_desc)",
        "rte_eth_dev_(start|stop|close|socket_id)",
        "rte_eth_(rx|tx)_queue_setup",
        "rte_eth_(find_next_owned_by|macaddr_get|promiscuous_enable|allmulticast_enable|stats_get)",
        "rte_extmem_(register|unregister)",
        "rte_dev_(dma_map|probe)",
        "rte_mem_virt2iova",
        "rte_mempool_(avail_count|free|obj_iter)",
        "rte_pktmbuf_pool_create_extbuf",
        "rte_strerror",
        "rte_thread_(register|unregister)",
        "rte_version",
    ];
    const TYPES: &[&str] =
        &["rte_mbuf", "rte_eth_conf", "rte_eth_dev_info", "rte_eth_stats", "rte_pktmbuf_extmem"];
    const CONSTANTS: &[&str] =
        &["KAIDO_.*", "LCORE_ID_ANY", "RTE_ETH_NAME_MAX_LEN", "RTE_LOG_.*", "RTE_MAX_ETHPORTS"];

    pub(crate) fn build() -> Result<(), String> {
        for file in ["shim/shim.c", "shim/shim.h"] {
            println!("cargo::rerun-if-changed={file}");
        }
        let libdpdk = pkg_config::Config::new()
            .range_version("22.11".."23")
            .cargo_metadata(false)
            .probe("libdpdk")
            .map_err(|error| format!("libdpdk 22.11 is needed: `scripts/setup dpdk` installs it\n{error}"))?;
        let mut compiler = cc::Build::new();
        compiler.file("shim/shim.c").includes(&libdpdk.include_paths);
        // DPDK's headers choose instructions at compile time, and want no less than its library was built for.
        for flag in ["-include", "rte_config.h"] {
            compiler.flag(flag);
        }
        if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
            compiler.flag("-march=corei7");
        }
        compiler
            .warnings(true)
            .warnings_into_errors(true)
            .try_compile("kaido_dpdk_shim")
            .map_err(|error| error.to_string())?;
        for path in &libdpdk.link_paths {
            println!("cargo::rustc-link-search=native={}", path.display());
        }
        // The drivers are plugins that DPDK loads by itself.
        for library in ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_eal"] {
            println!("cargo::rustc-link-lib=dylib={library}");
        }
        bindings(&libdpdk.include_paths)
    }

    fn bindings(include_paths: &[PathBuf]) -> Result<(), String> {
        let mut builder = bindgen::builder()
            .header("shim/shim.h")
            .clang_args(["-include", "rte_config.h"])
            .clang_args(include_paths.iter().map(|path| format!("-I{}", path.display())))
            .generate_comments(false)
            .derive_default(true)
            .layout_tests(true)
            .default_enum_style(bindgen::EnumVariation::Consts)
            .rust_target(bindgen::RustTarget::stable(85, 0).map_err(|error| error.to_string())?)
            .rust_edition(bindgen::RustEdition::Edition2024);
        if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
            builder = builder.clang_arg("-march=corei7");
        }
        if let Some(folder) = resource_dir() {
            builder = builder.detect_include_paths(false).clang_args(["-resource-dir", &folder]);
        }
        for name in FUNCTIONS {
            builder = builder.allowlist_function(name);
        }
        for name in TYPES {
            builder = builder.allowlist_type(name);
        }
        for name in CONSTANTS {
            builder = builder.allowlist_var(name);
        }
        let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
        let bindings = builder
            .generate()
            .map_err(|error| format!("bindgen: {error}; it needs libclang: `scripts/setup dpdk`"))?;
        bindings.write_to_file(out.join("dpdk.rs")).map_err(|error| error.to_string())
    }

    /// The headers that belong to the libclang that bindgen has loaded: those of another version on the same machine,
    /// which bindgen would find first, do not compile with it.
    fn resource_dir() -> Option<String> {
        let (major, _) = bindgen::clang_version().parsed?;
        let clang =
            std::process::Command::new(format!("clang-{major}")).arg("-print-resource-dir").output().ok()?;
        let folder = String::from_utf8(clang.stdout).ok()?;
        clang.status.success().then(|| folder.trim().to_owned())
    }
}
