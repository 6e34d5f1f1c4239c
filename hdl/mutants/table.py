#!/usr/bin/env python3
"""Mutants of the exact-match table: each is one change of the RTL that a test or a proof must catch.

    hdl/mutants/table.py [NAME ...] [--list]

Each mutant is applied to a copy of hdl/rtl. The bench's tests run in the order of `tests` of the
mutant; a mutant without tests goes to the proof named. Prints what caught it. Exit status: mutants
that nothing caught.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HDL = Path(__file__).resolve().parent.parent
# name, file, text, replacement, where: "test ..." of the default bench, "wide:test ...", "proof:task"
MUTANTS = [
    (
        "update_deletes_first",
        "em_engine",
        "default:   state <= WRITE;",
        "default: begin dst_way <= hit; state <= op_code == OP_DELETE ? WRITE : GONE; end",
        "update_storm",
    ),
    (
        "hash_low_rank",
        "em_engine",
        "assign row      = op_arg[IDX_W-1:0];",
        "assign row      = op_arg[IDX_W-1:0] & IDX_W'(31);",
        "fill hash_rows",
    ),
    (
        "hash_one_way",
        "em_hash",
        ".b_we  (ld_way[w] && ld_chunk[c])",
        ".b_we  (ld_way[w == 3 ? 2 : w] && ld_chunk[c])",
        "hash_rows",
    ),
    (
        "hash_skips_byte",
        "em_hash",
        "a_xor ^= a_q[c];",
        "if (c != 1) a_xor ^= a_q[c];",
        "hash_rows random_operations",
    ),
    (
        "hash_row_lost",
        "em_engine",
        "if (in_row && !row_chunk[c] || state == IDLE && op_code == OP_ROW) hkey",
        "if (in_row && !row_chunk[c]) hkey",
        "hash_rows",
    ),
    (
        "move_breaks_first",
        "em_engine",
        "sel_new ? WRITE : MOVE;",
        "sel_new ? WRITE : GONE;",
        "moves proof:core_path",
    ),
    (
        "move_erases_source",
        "em_engine",
        "assign wr_valid  = !clr && op_code != OP_DELETE;",
        "assign wr_valid  = !clr && op_code != OP_DELETE && !(state == MOVE && moving);",
        "moves fill",
    ),
    (
        "move_loses_key",
        "em_engine",
        "dst_way <= node_way;\n        sel_new",
        "dst_way <= push_way;\n        sel_new",
        "fill moves",
    ),
    (
        "parent_off_by_one",
        "em_engine",
        ".d    ({node, push_way, push_idx})",
        ".d    ({node ^ QUEUE_W'(1), push_way, push_idx})",
        "fill",
    ),
    (
        "search_ends_early",
        "em_engine",
        "if (queue_rd == queue_wr) begin",
        "if (queue_rd == queue_wr || queue_rd[1]) begin",
        "fill",
    ),
    (
        "search_keeps_roots_only",
        "em_engine",
        "assign push = state == PUSH && ",
        "assign push = state == PUSH && !searching && ",
        "fill",
    ),
    (
        "node_with_other_ways",
        "em_engine",
        "state == NODE_READ && node_way[w]);",
        "state == NODE_READ);",
        "fill moves",
    ),
    (
        "reads_not_zero",
        "em_engine",
        "state == COMPARE || state == NODE_READ",
        "state == COMPARE || state == IDLE || state == NODE_READ",
        "random_operations",
    ),
    (
        "root_key_not_back",
        "em_engine",
        "assign of_op   = state == IDLE || state == MOVE;",
        "assign of_op   = state == IDLE;",
        "fill moves",
    ),
    ("root_limit", "em_engine", "node < QUEUE_W'(WAYS) ?", "node <= QUEUE_W'(WAYS) ?", "fill moves"),
    (
        "entry_number_moves_wrong",
        "em_engine",
        "NODE_KEY: begin\n        ent_epoch <= sel_epoch;",
        "NODE_KEY: begin\n        ent_epoch <= !sel_epoch;",
        "moves fill",
    ),
    (
        "insert_ignores_present",
        "em_engine",
        "end else if (|hit) begin\n          case",
        "end else if (|hit && op_code != OP_INSERT) begin\n          case",
        "random_operations",
    ),
    (
        "put_is_insert",
        "em_engine",
        "OP_INSERT: begin\n              status <= ST_DUPLICATE;",
        "OP_INSERT, OP_PUT: begin\n              status <= ST_DUPLICATE;",
        "random_operations",
    ),
    ("wrong_status", "em_engine", "status <= ST_NOT_FOUND;", "status <= ST_OK;", "random_operations"),
    ("full_is_ok", "em_engine", "status <= ST_FULL;", "status <= ST_OK;", "fill"),
    (
        "free_list_not_returned",
        "em_engine",
        ".we   (clr || op_done && removed)",
        ".we   (clr)",
        "moves random_operations",
    ),
    (
        "free_list_tail",
        "em_engine",
        "tail <= next_id(tail);",
        "tail <= next_id(next_id(tail));",
        "random_operations moves",
    ),
    ("used_not_reduced", "em_engine", "used <= used - (ID_W + 1)'(1);", "used <= used;", "random_operations"),
    (
        "delete_keeps_entry",
        "em_engine",
        "state == WRITE && (sel_new || op_code == OP_DELETE)",
        "state == WRITE && sel_new",
        "random_operations",
    ),
    ("start_not_needed", "em_engine", "if (live) state <= HASH;", "if (1'b1) state <= HASH;", "registers"),
    (
        "row_while_live",
        "em_engine",
        "if (live) status <= ST_DENIED;\n              else state <= op_arg",
        "if (1'b0) status <= ST_DENIED;\n              else state <= op_arg",
        "registers",
    ),
    (
        "clear_one_short",
        "em_engine",
        "if (tail == ID_W'(ENTRIES - 1)) state",
        "if (tail == ID_W'(ENTRIES - 2)) state",
        "fill registers proof:core_base",
    ),
    ("reset_keeps_entries", "em_engine", "      state    <= CLEAR;\n", "      state    <= IDLE;\n", "resets"),
    (
        "epoch_never_changes",
        "em_engine",
        "{ent_epoch ^ cnt_match, ent_id}",
        "{ent_epoch, ent_id}",
        "lives random_operations",
    ),
    ("epoch_always_changes", "em_engine", "{ent_epoch ^ cnt_match, ent_id}", "{!ent_epoch, ent_id}", "lives"),
    ("drain_too_short", "em_engine", "DRAIN = 4'd3", "DRAIN = 4'd0", "random_operations counters"),
    (
        "stale_word_used",
        "em_lookup",
        "if (!q_valid[w] || meets[w])",
        "if (!q_valid[w])",
        "moves random_operations proof:core_step",
    ),
    (
        "no_value_bypass",
        "em_lookup",
        "assign res_value = val_meets ? val_d : val_q;",
        "assign res_value = val_q;",
        "update_storm",
    ),
    (
        "key_byte_ignored",
        "em_lookup",
        "hits[w]  = &c_eq[w];",
        "hits[w]  = &(c_eq[w] | GROUPS'(2));",
        "fill random_operations proof:core_step",
    ),
    (
        "engine_key_byte_ignored",
        "em_engine",
        "<= differ[w][8*g+:8] == '0;",
        "<= g == 1 || differ[w][8*g+:8] == '0;",
        "near_keys",
    ),
    (
        "late_length",
        "em_lookup",
        "c_len   <= p_len[PRE];",
        "c_len   <= p_len[PRE-1];",
        "random_operations counters",
    ),
    (
        "epoch_of_way_0",
        "em_lookup",
        "c_epoch[w] <= q_epoch[w];",
        "c_epoch[w] <= q_epoch[0];",
        "lives random_operations",
    ),
    (
        "counter_adds_two",
        "em_counters",
        "s_pkts + PKT_W'(s_hit)",
        "s_pkts + (PKT_W'(s_hit) << 1)",
        "counters",
    ),
    (
        "bytes_one_less",
        "em_counters",
        "s_bytes + BYTE_W'(s_len)",
        "s_bytes + BYTE_W'(s_len) - BYTE_W'(1)",
        "counters",
    ),
    (
        "no_forward_sum",
        "em_counters",
        "forward_sum  <= r_hit && rd_id == r_id;",
        "forward_sum  <= 1'b0;",
        "counters",
    ),
    (
        "no_forward_last",
        "em_counters",
        "forward_last <= s_hit && rd_id == s_id;",
        "forward_last <= 1'b0;",
        "counters",
    ),
    (
        "forward_last_first",
        "em_counters",
        "if (forward_sum) begin",
        "if (forward_sum && !forward_last) begin",
        "counters",
    ),
    (
        "control_reads_collision",
        "em_counters",
        "ctl_forward  <= s_hit && ctl_id == s_id;",
        "ctl_forward  <= 1'b0;",
        "counters",
    ),
    (
        "old_epoch_counts",
        "em_counters",
        "&& q_epoch != r_epoch;",
        "&& 1'b0;",
        "lives random_operations",
    ),
    (
        "misses_are_counted",
        "em_lookup",
        "assign cnt_valid = d_hit;",
        "assign cnt_valid = d_valid;",
        "random_operations",
    ),
    ("arbiter_starves", "em_arbiter", "last  <= |above ? first_above : first;", "last  <= last;", "writers"),
    (
        "arbiter_two_grants",
        "em_arbiter",
        "grant <= |above ? first_above : first;",
        "grant <= |above ? above : first;",
        "writers proof:arbiter",
    ),
    (
        "grant_not_kept",
        "em_arbiter",
        "else if (grant == '0 && req != '0) begin",
        "else if (req != '0) begin",
        "writers proof:arbiter",
    ),
    ("done_to_all_ports", "em_table", ".op_done(op_done && grant[p])", ".op_done(op_done)", "writers"),
    ("slverr_not_said", "em_axil", "bresp  <= wr_ok ? OKAY : SLVERR;", "bresp  <= OKAY;", "registers"),
    ("read_error_not_said", "em_axil", "rresp  <= rd_ok ? OKAY : SLVERR;", "rresp  <= OKAY;", "registers"),
    ("write_while_busy", "em_axil", "wstrb == 4'hF && !op_valid;", "wstrb == 4'hF;", "registers"),
    ("strobe_ignored", "em_axil", "&& wstrb == 4'hF &&", "&&", "registers"),
    ("bvalid_falls", "em_axil", "if (bready) bvalid <= 1'b0;", "bvalid <= 1'b0;", "registers proof:axil"),
    (
        "rdata_changes",
        "em_axil",
        "assign arready = !rvalid;",
        "assign arready = 1'b1;",
        "registers proof:axil",
    ),
    (
        "write_before_data",
        "em_axil",
        "assign awready = write;",
        "assign awready = !bvalid;",
        "registers proof:axil",
    ),
    (
        "bytes_high_word",
        "em_axil",
        "rd_word = bytes64[63:32];",
        "rd_word = bytes64[31:0];",
        "counters random_operations",
    ),
]

# The mutant that deletes and inserts again in the engine needs one more state.
GONE_STATE = ("    ROW_WRITE\n  } state_t;", "    ROW_WRITE,\n    GONE,\n    GONE_GAP\n  } state_t;")
GONE = """      GONE: begin
        sel_new <= 1'b0;
        state   <= GONE_GAP;
      end
      GONE_GAP: state <= WRITE;
      default: state <= IDLE;"""


def apply(name: str, rtl: Path) -> None:
    _, file, old, new, _ = next(m for m in MUTANTS if m[0] == name)
    path = rtl / f"{file}.sv"
    text = path.read_text()
    assert text.count(old) >= 1, f"{name}: text not found in {file}.sv: {old!r}"
    text = text.replace(old, new, 1)
    if name == "update_deletes_first":
        for a, b in (GONE_STATE, ("      default: state <= IDLE;", GONE)):
            assert a in text
            text = text.replace(a, b, 1)
        # The entry is removed at GONE and written again at WRITE.
        a = "assign table_write = state == WRITE && (sel_new || op_code == OP_DELETE) || state == MOVE;"
        assert a in text
        text = text.replace(a, "assign table_write = state == WRITE || state == GONE || state == MOVE;")
        a = "assign wr_valid  = !clr && op_code != OP_DELETE;"
        assert a in text
        text = text.replace(
            a, "assign wr_valid  = !clr && op_code != OP_DELETE && state != GONE && state != GONE_GAP;"
        )
    if name == "move_breaks_first":
        # The entry leaves its old place at GONE and gets to its new place at MOVE.
        for a, b in (
            GONE_STATE,
            (
                "      default: state <= IDLE;",
                GONE.replace("WRITE;", "MOVE;").replace("sel_new <= 1'b0;", ""),
            ),
            ("state <= |free ? MOVE : PUSH;", "state <= |free ? GONE : PUSH;"),
            ("|| state == MOVE;", "|| state == MOVE || state == GONE;"),
            ("assign wr_valid  = !clr", "assign wr_valid  = state != GONE && state != GONE_GAP && !clr"),
            ("table_write && dst_way[w]", "table_write && (state == GONE ? node_way[w] : dst_way[w])"),
            ("clr || state == NODE_READ;", "clr || state == NODE_READ || state == GONE;"),
        ):
            assert a in text, a
            text = text.replace(a, b, 1)
    path.write_text(text)


def attempt(name: str) -> tuple[str, str, float]:
    begin = time.monotonic()
    where = next(m for m in MUTANTS if m[0] == name)[4]
    with tempfile.TemporaryDirectory(prefix=f"em_{name}_") as folder:
        rtl, build = Path(folder) / "rtl", Path(folder) / "build"
        shutil.copytree(HDL / "rtl", rtl)
        apply(name, rtl)
        env = os.environ | {"KAIDO_HDL_RTL": str(rtl), "KAIDO_HDL_BUILD": str(build), "KAIDO_HDL_ALL": "1"}
        for place in where.split():
            if place.startswith("proof:"):
                local = (
                    HDL.parent / "target" / "hdl" / f"mutant_{name}"
                )  # the packaged yosys does not see /tmp
                cmd = [
                    sys.executable,
                    str(HDL / "formal" / "run"),
                    place[6:],
                    "--no-cover",
                    "--jobs",
                    "1",
                    "--build",
                    str(local),
                ]
                shutil.copytree(rtl, local / "rtl", dirs_exist_ok=True)
                run = subprocess.run(
                    [*cmd, "--rtl", str(local / "rtl")], env=env, capture_output=True, text=True
                )
                shutil.rmtree(local)
                if run.returncode:
                    found = re.search(r"Assert failed in \w+: (\w+)", run.stdout)
                    return (
                        name,
                        f"{place} {found.group(1) if found else run.stdout.strip()[:90]}",
                        time.monotonic() - begin,
                    )
                continue
            env["KAIDO_HDL_TESTS"] = place
            cmd = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                str(HDL / "tests/test_em_table.py") + "::test_em_table[default]",
            ]
            try:
                run = subprocess.run(cmd, env=env, capture_output=True, text=True, timeout=240)
            except subprocess.TimeoutExpired:
                return name, f"{place} (hangs)", time.monotonic() - begin
            said = run.stdout + run.stderr
            if "%Error" in said:
                return name, "", time.monotonic() - begin  # does not build: no catch
            if run.returncode:
                return name, place, time.monotonic() - begin
    return name, "", time.monotonic() - begin


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("name", nargs="*")
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--jobs", type=int, default=2)
    args = ap.parse_args()
    names = args.name or [m[0] for m in MUTANTS]
    if args.list:
        print("\n".join(names))
        return 0
    if shutil.which("ccache"):
        os.environ.setdefault("OBJCACHE", "ccache")  # the simulator's own files are compiled once
    alive = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for name, caught, seconds in pool.map(attempt, names):
            print(f"{'caught' if caught else 'ALIVE '} {name}: {caught or '-'} ({seconds:.0f} s)", flush=True)
            alive += not caught
    print(f"{len(names) - alive} of {len(names)} caught")
    return alive


if __name__ == "__main__":
    sys.exit(main())
