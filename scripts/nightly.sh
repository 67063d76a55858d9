#!/usr/bin/env bash
# What takes too long for every commit. The last line is `N passed, N failed`, as of scripts/test.sh; the status is 0
# only if none failed. Takes step names: only those are run (setup, functions and build always are).
#   scripts/nightly.sh [STEP...]
# What each step printed is in build/nightly-results/. A new step is a line in `all_steps`: its name, its limit in
# seconds, its command. One that writes JUnit's XML to $results/NAME.xml has its tests counted one by one.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
results=${KVMSERVER_BUILD:-$PWD/build}/nightly-results
# shellcheck source=scripts/steps.sh
source scripts/steps.sh

wanted=("$@")

# nightly NAME LIMIT COMMAND...: a step, if it is wanted.
nightly() {
    if ((${#wanted[@]} == 0)) || [[ " ${wanted[*]} " == *" $1 "* ]]; then step_function "$@"; fi
}

# unique_values XML: 10,000 requests of each program of tests/e2e/guests/unique.
unique_values() {
    scripts/setup.sh --nightly && scripts/functions.sh runtimes || return
    UNIQUE_REQUESTS=10000 $python -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short -rs \
        --junitxml "$1" tests/e2e/test_unique.py
}
export -f unique_values

# odd_exits XML [VENDOR]: 1,000 of each odd end of a request (tests/e2e/guests/odd_kinds.c), here or emulated.
odd_exits() {
    local test='tests/e2e/test_faults.py::test_an_odd_end_leaves_no_trace'
    export ODD_EXITS=1000 EMULATED_LIMIT=20000
    if (($# > 1)); then
        emulated_e2e "$2" "$1" c-epoll "$test"
    else
        $python -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short --junitxml "$1" "$test"
    fi
}
export -f odd_exits

all_steps() {
    # Intel's VT-x, emulated.
    nightly intel-machine 3000 emulated_machine intel "$results/intel-machine.xml"
    nightly intel-e2e 3000 emulated_e2e intel "$results/intel-e2e.xml" c-epoll,rust-tokio-multi \
        tests/e2e/test_hosts.py tests/e2e/test_isolation.py --quick
    # A hardware host whose CPU has no XSAVE.
    nightly amd-without-xsave 1500 emulated_machine amd "$results/amd-without-xsave.xml" --cpu max,+svm,+npt,-xsave
    # A machine that ended oddly leaves no trace in the next.
    nightly odd-exits 7200 odd_exits "$results/odd-exits.xml"
    nightly odd-exits-amd 20000 odd_exits "$results/odd-exits-amd.xml" amd
    nightly odd-exits-intel 20000 odd_exits "$results/odd-exits-intel.xml" intel
    # Each libFuzzer program for an hour, two at a time; then which lines of the fuzzed files they reach.
    nightly fuzz 36000 scripts/fuzz.py --seconds 3600 --coverage --xml "$results/fuzz.xml"
    # No value twice in 10,000 requests, in every language.
    nightly unique 3600 unique_values "$results/unique.xml"
    # The binary for older systems, tried in one.
    nightly release 1800 scripts/release.sh --check
    # Servers of Debian that exercise something that no other does.
    nightly servers 3600 scripts/servers.py --new --install
}

begin_steps
build_all
all_steps
finish
