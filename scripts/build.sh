#!/usr/bin/env bash
# Builds kvmserver and its tests into build/.
#   scripts/build.sh [-DNAME=VALUE...] [TARGET...]    all, or only these (kvmserver); with these options of CMake
# KVMSERVER_BUILD names another folder.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${KVMSERVER_BUILD:-$root/build}
mkdir -p "$build"
options=()
while [[ ${1-} == -D* ]]; do
    options+=("$1")
    shift
done
if ! cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "${options[@]}" >"$build/configure.log" 2>&1; then
    cat "$build/configure.log" >&2
    exit 1
fi
exec ninja -C "$build" "$@"
