# shellcheck shell=bash
# What every script here shares. Source it after `set -euo pipefail`.

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export root_dir

say() { printf '\033[1m==> %s\033[0m\n' "$*"; }
fail() {
    printf 'error: %s\n' "$1" >&2
    [[ $# -gt 1 ]] && printf '  help: %s\n' "$2" >&2
    exit 1
}
is_root() { [[ $(id -u) -eq 0 ]]; }

# What the steps of a script print is kept here, and how long each took.
log=/dev/null
times=/dev/null

# Runs a step and shows what it prints. One that fails ends the script, as does a lane that has failed meanwhile.
step() {
    local name=$1 at=$SECONDS used='' status
    shift
    end_with_failed_lanes
    say "$name"
    [[ $times == /dev/null ]] || used=$(mktemp)
    # In no condition: in one, a function would go on behind what fails in it, and `set -e` would say nothing.
    set +e
    (trap 'times >"${used:-/dev/null}"' EXIT && set -e && "$@") 2>&1 | tee -a "$log"
    status=${PIPESTATUS[0]}
    set -e
    if [[ $status -ne 0 ]]; then
        printf '\n%s failed; the command was:\n  %s\n' "$name" "$*" >&2
        exit 1
    fi
    [[ -z $used ]] || used=$(cpu_seconds "$used")
    printf '%d\t%s\t%s\n' $((SECONDS - at)) "$used" "$name" >>"$times"
    printf -- '-- %s: %d s%s\n' "$name" $((SECONDS - at)) "${used:+, $used s of CPU time}"
}

# The CPU seconds, user and system, of what a shell has run, by what its `times` has written to a file, which goes.
cpu_seconds() {
    awk -F '[ms ]+' 'NR == 2 { used = 60 * ($1 + $3) + $2 + $4 } END { printf "%d", used }' "$1"
    rm "$1"
}

# How many steps have passed, and all of them with their seconds and CPU seconds, the longest first.
steps_passed() { wc -l <"$times"; }
steps_by_time() {
    sort -rn "$times" | awk -F '\t' '{ printf "%6d s %6d s of CPU  %s\n", $1, $2, $3; sum += $2 } END { printf "         %6d s of CPU  all\n", sum }'
}

# Lanes: functions whose steps run beside those of the script. What they print is shown when they are joined.
declare -A lanes=()
lanes_dir=

# Starts a lane: `lane NAME FUNCTION`.
lane() {
    local name=$1
    shift
    lanes_dir=${lanes_dir:-$(mktemp -d)}
    # With a process group of its own, so that it can be ended with all that runs in it.
    set -m
    (lanes=(); "$@") </dev/null >"$lanes_dir/$name" 2>&1 &
    set +m
    lanes[$name]=$!
}

# Waits for a lane and shows what it printed, if that was not done before. One that failed ends the script.
join_lane() {
    local name=$1 status=0
    [[ -n ${lanes[$name]:-} ]] || return 0
    wait "${lanes[$name]}" || status=$?
    unset "lanes[$name]"
    cat "$lanes_dir/$name"
    [[ $status -eq 0 ]] || fail "the lane $name failed: see what it printed above"
}

end_with_failed_lanes() {
    local name
    for name in "${!lanes[@]}"; do
        kill -0 "${lanes[$name]}" 2>/dev/null || join_lane "$name"
    done
}

# Ends the lanes that still run: as Ctrl-C would, so that they take down what they set up, and what is left after 20 s
# for good. What they printed is shown. For the trap of a script.
end_lanes() {
    local name pid late=()
    for name in "${!lanes[@]}"; do
        pid=${lanes[$name]}
        if kill -INT -- "-$pid" 2>/dev/null; then
            (sleep 20 && kill -KILL -- "-$pid") >/dev/null 2>&1 &
            late+=($!)
            wait "$pid" || true
        fi
        # What failed in it is in what it prints at its end.
        say "The lane $name is ended"
        cat "$lanes_dir/$name"
    done
    [[ ${#late[@]} -eq 0 ]] || kill "${late[@]}" 2>/dev/null || true
    [[ -z $lanes_dir ]] || rm -rf "$lanes_dir"
}

skip() { printf 'SKIPPED %s: %s\n' "$1" "$2" | tee -a "$log"; }

# Ends the script where so many GiB are not free: a disk that is full fails late, and anywhere.
need_room() {
    local free
    free=$(df --output=avail --block-size=1G "$root_dir" | tail -n 1 | tr -d ' ')
    [[ $free -ge $1 ]] || fail "$free GiB are free where $root_dir is; building and testing takes more than $1" \
        "free some, or clone to a larger disk"
}

# The pinned toolchain where it is, or can be, installed; else whatever Rust is there, if new enough.
choose_toolchain() {
    command -v cargo >/dev/null || fail "cargo is not installed" \
        "install Rust 1.90 or newer, for instance with rustup"
    if ! (cd "$root_dir" && cargo --version >/dev/null 2>&1); then
        local found
        found=$(rustup default 2>/dev/null | cut -d' ' -f1)
        [[ -n $found ]] || fail "the toolchain of rust-toolchain.toml is not installed" \
            "rustup toolchain install"
        export RUSTUP_TOOLCHAIN=$found
    fi
    local version
    version=$(cd "$root_dir" && rustc --version | cut -d' ' -f2)
    [[ $(printf '1.90.0\n%s\n' "$version" | sort -V | head -1) == 1.90.0 ]] ||
        fail "Rust $version is too old" "Kaido needs 1.90 or newer: rustup update stable"
}

# Installs Debian packages that are missing. Without root, says which.
need_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [[ ${#missing[@]} -eq 0 ]] && return
    if ! is_root; then
        fail "these Debian packages are missing: ${missing[*]}" "sudo apt-get install ${missing[*]}"
    fi
    say "Installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
}

# Unpacks Debian packages below target/debian, for programs whose packages would start services when installed.
unpack_packages() {
    local package folder=$root_dir/target/debian
    mkdir -p "$folder"
    for package in "$@"; do
        [[ -e $folder/.$package ]] && continue
        say "Unpacking $package"
        (cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq "$package" && dpkg-deb -x "$package"_*.deb . &&
            rm "$package"_*.deb && touch ".$package") || say "$package is not to be had; what needs it is skipped"
    done
}

# The version of the workspace.
version_number() { sed -n 's/^version = "\(.*\)"$/\1/p' "$root_dir/Cargo.toml" | head -1; }

# Builds the release binary where it is not there; that of another name must be.
need_binary() {
    [[ ! -x $1 ]] || return 0
    [[ $1 == target/release/kaido ]] || fail "there is no program $1"
    make --no-print-directory build
}

# The commit's time stands for that of what is built, unless the environment has another.
use_commit_time() {
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    export SOURCE_DATE_EPOCH
}

# Where programs of crates.io are installed that a script needs.
tools_dir=$root_dir/target/tools/bin

# A program of crates.io, in a version, for this project alone; further arguments are those of `cargo install`.
need_cargo_tool() {
    local name=$1 version=$2
    shift 2
    if [[ ! -x $tools_dir/$name || $("$tools_dir/$name" --version 2>/dev/null) != *"$version"* ]]; then
        say "Installing $name $version"
        # Slow to run and fast to build: it is run once. What several of them need is built once.
        CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=$(dirname "$tools_dir")/build cargo install "$name" --version "=$version" \
            --locked --debug --quiet --root "$(dirname "$tools_dir")" "$@"
    fi
}

# A Python environment of the project's own, with the packages of a requirements file.
need_python() {
    local wanted=$1 venv=$root_dir/.venv stamp
    stamp=$venv/.installed-$(basename "$(dirname "$wanted")")
    if [[ ! -x $venv/bin/python ]]; then
        say "Making a Python environment"
        python3 -m venv "$venv"
    fi
    if ! cmp -s "$wanted" "$stamp" 2>/dev/null; then
        say "Installing Python packages of ${wanted#"$root_dir"/}"
        "$venv/bin/python" -m pip install --quiet --no-compile --requirement "$wanted"
        cp "$wanted" "$stamp"
    fi
}
