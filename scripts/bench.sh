#!/usr/bin/env bash
# Measures: sets up, builds, then the bare programs, run, run -e, snaprun -e and HTTP mode side by side
# (bench/side_by_side.py), the time to the first reply (bench/start.py), and single operations (bench/micro); draws charts.
#   scripts/bench.sh [--no-setup] [OPTIONS of bench/side_by_side.py]
#   scripts/bench.sh --quick             one connection, a new one each: a few minutes
#   scripts/bench.sh density [OPTIONS of bench/density.py]    starts and memory with up to 8,000 functions alive, and at rest: 20 minutes
#   scripts/bench.sh --programs c-epoll,node-http --peer /opt/other/kvmserver
# Figures are in build/bench/*.json, charts in docs/charts/ when matplotlib is there. docs/PERFORMANCE.md says how to read them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
export KVMSERVER_BUILD=${KVMSERVER_BUILD:-$root/build}
build=$KVMSERVER_BUILD
out=$build/bench
python=/usr/bin/python3

usage() {
    sed -n '2,/^set/{/^#/s/^# \?//p}' "${BASH_SOURCE[0]}"
    $python bench/side_by_side.py --help
}

density=0
if [[ ${1:-} == density ]]; then density=1; shift; fi
setup=1 programs=c-epoll,rust-tokio,python-http,node-http,deno-serve,node-react rounds=15
arguments=()
while (($#)); do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --no-setup) setup=0; shift; continue ;;
        --programs) programs=${2:?--programs needs names, as c-epoll,node-http}; arguments+=("$1"); shift ;;
        --programs=*) programs=${1#*=} ;;
        --quick) rounds=5 ;;
    esac
    if (($#)); then arguments+=("$1"); shift; fi
done
IFS=, read -r -a names <<<"$programs"

title() { printf '\n== %s\n' "$*"; }
say() { printf '   %s\n' "$*"; }
die() { printf 'bench: %s\n' "$*" >&2; exit 1; }

# Runs a step that talks much: its output goes to a file and is shown only when it fails.
quietly() {  # WHAT COMMAND...
    local what=$1 log=$out/${1// /-}.log started=$SECONDS
    shift
    say "$what ... (output: ${log#"$root"/})"
    "$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2; return 1; }
    say "done in $((SECONDS - started)) s"
}
must() { quietly "$@" || die "$1 failed"; }

has_matplotlib() { $python -c 'import matplotlib' 2>/dev/null; }

# python3-munkres: else apt takes scipy for it, whose libboost1.74-dev conflicts with the 1.81 that kvmserver is built with.
install_matplotlib() {
    has_matplotlib && return
    local as_root=()
    ((EUID == 0)) || as_root=(sudo)
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends python3-munkres python3-matplotlib
}

build_load() { cmake -S bench/load -B "$out/load" -G Ninja -DCMAKE_BUILD_TYPE=Release && cmake --build "$out/load"; }
build_micro() { cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKVMSERVER_BENCH=ON && ninja -C "$build" micro; }

mkdir -p "$out"
((density)) || rm -f "$out"/{side_by_side,start,micro}.json
((density == 0)) || programs=c-epoll,node-http names=(c-epoll node-http)
title "Set up and build"
if ((setup)); then
    must "set up" scripts/setup.sh --tests
    quietly "set up matplotlib" install_matplotlib || say "no charts without it; the rest goes on"
fi
[[ -r /dev/kvm && -w /dev/kvm ]] || die "/dev/kvm is missing or not permitted: build/bin/kvmserver doctor says what would mend it"
must "build" scripts/build.sh kvmserver
must "sample programs" scripts/functions.sh "${names[@]}"
if ((density)); then
    chart=()
    if has_matplotlib; then chart=(--chart docs/charts/density.svg); fi
    title "Starts and memory, by the number of functions alive"
    $python bench/density.py --json "$out/density.json" "${chart[@]}" "${arguments[@]}"
    title "Memory just after a request and at rest"
    $python bench/memory.py --json "$out/memory.json"
    say "figures are in ${out#"$root"/}/density.json and memory.json"
    exit
fi
must "build the load generator" build_load
micro=$out/micro/micro
status=0
if [[ -e bench/micro/CMakeLists.txt ]]; then
    quietly "build the micro-benchmarks" build_micro || { say "they are left out"; micro='' status=1; }
fi

title "Side by side"
$python bench/side_by_side.py --json "$out/side_by_side.json" "${arguments[@]}" || status=$?
if ((status == 2 || status > 128)); then exit "$status"; fi  # wrong options, interrupted

title "From the start of the process to its first reply"
$python bench/start.py --rounds "$rounds" --json "$out/start.json" "${names[@]}" || status=1

if [[ -x $micro ]]; then
    title "Single operations"
    "$micro" --benchmark_out="$out/micro.json" --benchmark_out_format=json || status=1
fi

title "Charts"
if ! has_matplotlib; then
    say "not drawn: matplotlib is missing: apt-get install python3-munkres python3-matplotlib"
elif [[ ! -e $out/side_by_side.json ]]; then
    say "not drawn: ${out#"$root"/}/side_by_side.json is missing"
else
    start=()
    [[ ! -e $out/start.json ]] || start=(--start "$out/start.json")
    $python bench/charts.py "$out/side_by_side.json" "${start[@]}" || status=1
fi
say "figures are in ${out#"$root"/}/*.json"
exit "$status"
