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
    must build 1200 scripts/build.sh
else
    build_all
fi

# Two chains side by side, for two cores: the emulated hosts, which have one processor, and all that runs natively.
emulated_chain() {
    if ((quick)); then
        skip hwhost "--quick"
        return
    fi
    step_function hwhost-machine 1000 emulated_machine amd "$results/hwhost-machine.xml"
    step_function hwhost 1300 emulated_e2e amd "$results/hwhost.xml" \
        c-epoll,c-epoll-dynamic,c-thread,rust-tokio-multi,node-http tests/e2e
    step_function intel 900 emulated_e2e intel "$results/intel.xml" c-epoll,rust-tokio-multi tests/e2e/test_hosts.py
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
if ((quick)); then skip fuzz "--quick"; else step fuzz 1500 scripts/fuzz.py --xml "$results/fuzz.xml"; fi
e2e e2e 1200 tests/e2e --ignore tests/e2e/test_contract.py
e2e contract 1200 tests/e2e/test_contract.py

wait
finish
