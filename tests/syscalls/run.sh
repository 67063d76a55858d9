#!/usr/bin/env bash
# Compares what the programs of this folder do in a machine with what they do natively.
#   tests/syscalls/run.sh [NAME...]     files, epoll-static, ...; --help says more
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${KVMSERVER_BUILD:-$here/../../build}
if [[ -e $build/build.ninja ]] && ! told=$(ninja -C "$build" syscall_programs 2>&1); then
    echo "$told" >&2
    exit 1
fi
exec /usr/bin/python3 "$here/compare.py" "$@"
