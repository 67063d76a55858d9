#!/usr/bin/env bash
# Sets up, builds and runs all tests. The last line is `N passed, N failed`; the status is 0 only if none failed.
#   scripts/test.sh            everything, natively and in the emulated hardware hosts (longer: scripts/nightly.sh)
#   scripts/test.sh --quick    for development: no setup, fewer programs and requests, no emulated host
# What each step printed is in build/test-results/.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
results=${KVMSERVER_BUILD:-$PWD/build}/test-results
# shellcheck source=scripts/steps.sh
source scripts/steps.sh

quick=0
case ${1-} in
    '') ;;
    --quick) quick=1 ;;
    *)
        echo "usage: scripts/test.sh [--quick]" >&2
        exit 2
        ;;
esac
begin_steps
if ((quick)); then
    must build 1800 scripts/build.sh all units
else
    build_all all other_units # and hostile_units with sanitizers, below
fi

# The limits are for machines that are half as fast as usual: they end what hangs.
# Two chains side by side, for two cores: the emulated hosts, which have one processor, and what runs natively. Both
# take a part of the end-to-end tests, so that they are done at the same time.
second_part=(tests/e2e/test_[ru-w]*.py) # a fifth of the time
((quick)) && second_part=(tests/e2e/test_[impru-z]*.py tests/e2e/test_t[o-z]*.py)
first_part=(tests/e2e --ignore tests/e2e/test_contract.py)
for file in "${second_part[@]}"; do first_part+=(--ignore "$file"); done
e2e() {  # NAME LIMIT ARGUMENTS...
    local name=$1 limit=$2 quickly=()
    shift 2
    ((quick)) && quickly=(--quick)
    step "$name" "$limit" $python -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short "${quickly[@]}" \
        --junitxml "$results/$name.xml" "$@"
}
chain_of_emulated_hosts() {
    if ((quick)); then
        skip hwhost "--quick"
        skip fuzz "--quick"
    else
        emulated_hosts
        sanitized
    fi
    e2e e2e-second 2400 "${second_part[@]}"
    e2e contract 1800 tests/e2e/test_contract.py
}
emulated_hosts() {
    step_function hwhost-machine 1500 emulated_machine amd "$results/hwhost-machine.xml"
    # One program, and what concerns the hardware: scripts/nightly.sh amd-e2e has the rest.
    ODD_EXITS=1 EMULATED_LIMIT=2600 step_function hwhost 2700 emulated_e2e amd "$results/hwhost.xml" c-epoll tests/e2e
    step_function intel 1400 emulated_e2e intel "$results/intel.xml" c-epoll \
        tests/e2e/test_hosts.py tests/e2e/test_gdb.py
}
# What reads strangers' bytes, with sanitizers: scripts/nightly.sh has all of it.
sanitized() {
    step sanitized-build 1800 nice scripts/fuzz.py --build-ci # it would have both processors
    units sanitized- 900 "$build/fuzz"
    step fuzz 1400 scripts/fuzz.py --no-build --ci --seconds 6 --xml "$results/fuzz.xml"
}
chain_of_emulated_hosts &

step check 300 scripts/check.sh
units "" 900 "$build"
if ((quick)); then
    skip tidy "--quick"
else
    step tidy 1400 scripts/check.sh --tidy=recent
fi
e2e e2e 3000 "${first_part[@]}"

wait
finish
