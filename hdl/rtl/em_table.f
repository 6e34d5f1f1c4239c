em_pkg.sv em_ram.sv em_ram_sdp.sv em_hash.sv em_counters.sv em_lookup.sv em_engine.sv em_core.sv em_arbiter.sv em_axil.sv em_table.sv
