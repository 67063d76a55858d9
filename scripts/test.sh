#!/usr/bin/env bash
# Sets up, builds and runs all tests. The last line is `N passed, N failed`; the status is 0 only if none failed.
#   scripts/test.sh            everything, natively and in the emulated hardware host
#   scripts/test.sh --quick    for development: no setup, fewer programs and requests, no emulated host
# What each step printed is in build/test-results/.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
root=$PWD
export KVMSERVER_BUILD=${KVMSERVER_BUILD:-$root/build}
build=$KVMSERVER_BUILD
results=$build/test-results
python=/usr/bin/python3

quick=0
case ${1-} in
    '') ;;
    --quick) quick=1 ;;
    *)
        echo "usage: scripts/test.sh [--quick]" >&2
        exit 2
        ;;
esac
rm -rf "$results"
mkdir -p "$results"
started=$SECONDS

say() { printf '[%3d s] %s\n' $((SECONDS - started)) "$*"; }

finish() {
    say "results"
    exec $python scripts/test_results.py "$results"
}

# step NAME LIMIT COMMAND...: runs it for LIMIT seconds at most, keeps its output and its status.
step() {
    local name=$1 limit=$2 status
    shift 2
    say "$name"
    timeout --kill-after 20 "$limit" "$@" >"$results/$name.log" 2>&1 </dev/null
    status=$?
    echo "$status" >"$results/$name.status"
    if ((status != 0)); then
        say "$name: status $status; the end of $results/$name.log:"
        tail -n 15 "$results/$name.log" | cut -c 1-300 | sed 's/^/          /'
    fi
    return "$status"
}

# What everything else stands on: without it there is nothing to test.
must() { step "$@" || finish; }

skip() { echo "skipped $2" >"$results/$1.status"; }

if ((quick == 0)); then
    must setup 900 scripts/setup.sh --tests
    must functions 1200 scripts/functions.sh
fi
must build 1200 scripts/build.sh

# Two chains side by side, for two cores: the emulated host, which has one processor, and all that runs natively.

# The hardware kind of host, emulated: the tests of machines, then the same end-to-end tests with some of the programs.
emulated_host() {
    local programs=c-epoll,c-epoll-dynamic,c-thread,rust-tokio-multi,node-http name adds=() node
    for name in ${programs//,/ }; do adds+=(--add "$root/build/functions/$name"); done
    node=$($python -c '
import json, sys
for program in json.load(open(sys.argv[1])):
    if program["name"] == "node-http":
        print(program["argv"][0])' "$root/build/functions/programs.json")
    scripts/hwhost.sh --timeout 1200 --with-python --cwd "$root" --env "KVMSERVER_BUILD=$build" --env E2E_SLOWNESS=20 \
        "${adds[@]}" --add "$node" --add "$root/build/functions/programs.json" --add "$root/functions/check.py" \
        --add "$root/tests" --add "$build/bin" --add "$build/tests/e2e" --add "$build/tests/syscalls" -- \
        sh -c "python3 -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short tests/e2e --emulated \
               --programs $programs --junitxml=/tmp/results.xml >&2
               status=\$?; cat /tmp/results.xml; exit \$status" >"$results/hwhost.xml"
}

emulated_machine() {
    scripts/hwhost.sh --timeout 900 --env E2E_SLOWNESS=20 --add "$build/tests/kvm" -- "$build/tests/kvm/test_machine" -r junit \
        >"$results/hwhost-machine.xml"
}
export -f emulated_host emulated_machine
export root build results python

emulated_chain() {
    if ((quick)); then
        skip hwhost "--quick"
        return
    fi
    step hwhost-machine 1000 bash -c emulated_machine
    step hwhost 1300 bash -c emulated_host
}
emulated_chain &

step include-direction-self-test 60 $python tests/include_direction.py --self-test
step include-direction 60 $python tests/include_direction.py

# Catch2 programs: build/**/test_*.
mapfile -t unit_tests < <(find "$build" -type f -name 'test_*' -perm -u+x -not -path '*/CMakeFiles/*' | sort)
for program in "${unit_tests[@]}"; do
    name=$(basename "$program")
    step "$name" 600 "$program" -r junit -o "$results/$name.xml"
done

e2e() {  # NAME LIMIT ARGUMENTS...
    local name=$1 limit=$2 quickly=()
    shift 2
    ((quick)) && quickly=(--quick)
    step "$name" "$limit" $python -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short "${quickly[@]}" \
        --junitxml "$results/$name.xml" "$@"
}
e2e e2e 1200 tests/e2e --ignore tests/e2e/test_contract.py
e2e contract 1200 tests/e2e/test_contract.py

wait
finish
