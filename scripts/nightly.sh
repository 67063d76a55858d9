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

# Also what takes long: all that tests/amount.hpp and the marks `nightly` of pytest leave out otherwise.
export KVMSERVER_TESTS=all

wanted=("$@")
steps=()
naming=1 # all_steps only names them

wanted() {
    if ((naming)); then
        steps+=("$1")
        return 1
    fi
    ((${#wanted[@]} == 0)) || [[ " ${wanted[*]} " == *" $1 "* ]]
}

# nightly NAME LIMIT COMMAND...: a step, if it is wanted.
nightly() {
    if wanted "$1"; then step_function "$@"; fi
}

# sanitized_e2e XML: what serves requests and what looks at strangers' snapshots, with AddressSanitizer and
# UndefinedBehaviorSanitizer (scripts/fuzz.py --build-all). Left out are a test that counts resident memory, of which
# AddressSanitizer keeps what is freed, and one without descriptors, of which UndefinedBehaviorSanitizer needs two to
# see whether an object is of its type.
sanitized_e2e() {
    local name files=()
    for name in isolation serve snapshot http_caps http_front http_life http_mode http_refused serve_files serve_api \
        serve_life serve_values serve_scale platform compress_later warm_later measurements admin_api remote ceilings \
        log_rate jail own_jail own_folders faults permissions mapped_files connections timers bad_input entropy run \
        crash_report dev tenants suspend linger; do
        files+=("tests/e2e/test_$name.py")
    done
    ln -sfn "$build/functions" "$build/fuzz/functions"
    KVMSERVER_BUILD=$build/fuzz $python -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short --quick \
        --junitxml "$1" "${files[@]}" \
        --deselect tests/e2e/test_log_rate.py::test_one_that_prints_without_end_loses_lines_and_others_none \
        --deselect tests/e2e/test_serve_scale.py::test_without_descriptors_nobody_waits_in_vain
}
export -f sanitized_e2e

# long_e2e XML: the end-to-end tests that scripts/test.sh leaves out.
long_e2e() {
    $python -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short --junitxml "$1" -m nightly tests/e2e
}
export -f long_e2e

# states XML: migrations that fail at every moment of every step, 200 kills at any moment, 1,000 suspends under load; and
# 200 kills of what changes the store.
states() {
    MIGRATIONS=all KILLS=200 SUSPENDS=1000 $python -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short \
        --junitxml "$1" tests/e2e/test_migrate_faults.py tests/e2e/test_migrate.py tests/e2e/test_suspend.py \
        tests/e2e/test_store_crash.py
}
export -f states

# With ThreadSanitizer: what has threads that share anything.
threads_build() {
    cmake -S . -B "$build/threads" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DKVMSERVER_SANITIZE=thread \
        -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ &&
        ninja -C "$build/threads" kvmserver e2e_guests http_front admin_listener test_daemon test_worker_pool \
            test_http test_machine test_store
}
export -f threads_build

# threads_e2e XML: left out is a test that counts how often an idle server wakes up, as the sanitizer itself does.
threads_e2e() {
    local name files=()
    for name in isolation http_mode http_caps http_front http_life serve serve_life serve_api serve_values serve_scale serve_files \
        tenants admin_api own_jail compress_later warm_later measurements connections timers entropy unique log_rate faults \
        traces tcp_functions kept storage suspend linger migrate; do
        files+=("tests/e2e/test_$name.py")
    done
    ln -sfn "$build/functions" "$build/threads/functions"
    KVMSERVER_BUILD=$build/threads $python -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short --quick \
        --junitxml "$1" "${files[@]}" --deselect tests/e2e/test_timers.py::test_an_idle_server_does_not_wake_up
}
export -f threads_e2e

# unique_values XML: 10,000 requests of each program of tests/e2e/guests/unique.
unique_values() {
    scripts/setup.sh --nightly && scripts/functions.sh runtimes || return
    UNIQUE_REQUESTS=10000 $python -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short -rs \
        --junitxml "$1" tests/e2e/test_unique.py
}
export -f unique_values

# templates XML: every template of init, also those whose dependencies are large.
templates() {
    scripts/setup.sh --nightly && scripts/functions.sh runtimes || return
    INIT_TEMPLATES=all $python -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short -rs \
        --junitxml "$1" tests/e2e/test_init.py
}
export -f templates

# samples XML: those of functions/samples.py, bare and deployed, with 1,000 requests each.
samples() {
    scripts/functions.sh --more && functions/check.py --more || return
    SAMPLES=all $python -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short -rs \
        --junitxml "$1" tests/e2e/test_samples.py
}
export -f samples

# drogon XML: examples/drogon, in a Debian 13 of its own, since Debian 12 has no Drogon.
drogon() {
    export DEBIAN13=$build/debian13
    if [[ ! -e $DEBIAN13/made ]]; then
        rm -rf "$DEBIAN13"
        debootstrap --variant=minbase trixie "$DEBIAN13" http://deb.debian.org/debian &&
            chroot "$DEBIAN13" env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends \
                g++ cmake make libdrogon-dev libjsoncpp-dev uuid-dev zlib1g-dev libyaml-cpp-dev libssl-dev \
                libbrotli-dev libsqlite3-dev libhiredis-dev libpq-dev libmariadb-dev &&
            touch "$DEBIAN13/made" || return
    fi
    $python -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short --junitxml "$1" tests/e2e/test_drogon.py
}
export -f drogon

# What differs most in what the CPU or KVM may still have to do. All kinds would take a day in an emulated host.
odd_kinds=in,in_wait,insb,rep_insl,rep_insl_down,in_exception,out_other,outsb,rep_outsl_call,out_wait_rubbish,jump_wait_in
odd_kinds+=,compat_in,compat_rep_ins,compat_int80,far_kernel,iret_nested,traced_ss,x87_pending,mxcsr_odd,no_stack_int3
odd_kinds+=,lost_page_ins,wrpkru,vectors,call_killed,jump_preempt
export odd_kinds

# odd_exits XML [VENDOR]: 1,000 of each odd end of a request (tests/e2e/guests/odd_kinds.c) here, of some emulated.
odd_exits() {
    local test='tests/e2e/test_faults.py::test_an_odd_end_leaves_no_trace'
    export ODD_EXITS=1000 EMULATED_LIMIT=20000
    if (($# > 1)); then
        ODD_KINDS=$odd_kinds emulated_e2e "$2" "$1" c-epoll "$test"
    else
        $python -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short --junitxml "$1" "$test"
    fi
}
export -f odd_exits

all_steps() {
    # clang-tidy over everything, of which scripts/test.sh checks what changed recently.
    nightly tidy 7200 scripts/check.sh --tidy
    # Intel's VT-x, emulated.
    nightly intel-machine 3000 emulated_machine intel "$results/intel-machine.xml"
    nightly intel-e2e 3000 emulated_e2e intel "$results/intel-e2e.xml" c-epoll,rust-tokio-multi \
        tests/e2e/test_hosts.py tests/e2e/test_isolation.py tests/e2e/test_library.py --quick
    # AMD's SVM, emulated, with more programs than scripts/test.sh has time for.
    EMULATED_LIMIT=6000 nightly amd-e2e 6000 emulated_e2e amd "$results/amd-e2e.xml" \
        c-epoll,c-epoll-dynamic,c-thread,rust-tokio-multi,node-http tests/e2e --nightly
    # A hardware host whose CPU has no XSAVE.
    nightly amd-without-xsave 1500 emulated_machine amd "$results/amd-without-xsave.xml" --cpu max,+svm,+npt,-xsave
    # A machine that ended oddly leaves no trace in the next.
    nightly odd-exits 7200 odd_exits "$results/odd-exits.xml"
    nightly odd-exits-amd 20000 odd_exits "$results/odd-exits-amd.xml" amd
    nightly odd-exits-intel 20000 odd_exits "$results/odd-exits-intel.xml" intel
    # AddressSanitizer and UndefinedBehaviorSanitizer, which in scripts/test.sh only what reads strangers' bytes has.
    nightly sanitized-build 3600 scripts/fuzz.py --build-all
    if wanted sanitized-units; then units sanitized- 900 "$build/fuzz"; fi
    nightly sanitized-e2e 3600 sanitized_e2e "$results/sanitized-e2e.xml"
    # Data races of the daemon, HTTP mode and images, by ThreadSanitizer.
    nightly threads-build 3600 threads_build
    if wanted threads-units; then TSAN_OPTIONS=handle_segv=0 units threads- 900 "$build/threads"; fi
    nightly threads-e2e 5400 threads_e2e "$results/threads-e2e.xml"
    # Each libFuzzer program for an hour, two at a time; then which lines of the fuzzed files they reach.
    nightly fuzz 36000 scripts/fuzz.py --seconds 3600 --coverage --xml "$results/fuzz.xml"
    # Four clients are answered for an hour under what goes wrong on a machine.
    nightly soak 4500 scripts/soak.py
    # No value twice in 10,000 requests, in every language.
    nightly unique 3600 unique_values "$results/unique.xml"
    # End-to-end tests that take long, here.
    nightly e2e 3600 long_e2e "$results/e2e.xml"
    # States of machines: nothing that was answered is lost, and none is live twice.
    nightly states 3600 states "$results/states.xml"
    # Java, Next.js and other templates that install much.
    nightly templates 1800 templates "$results/templates.xml"
    # An image resizer, a PDF renderer, Next.js, Flask with SQLite and a model, as people deploy them.
    nightly samples 1800 samples "$results/samples.xml"
    # The binary for older systems, tried in one.
    nightly release 1800 scripts/release.sh --check
    # The Helm chart: its objects, and daemons that are started as it says.
    nightly helm 1800 scripts/check_helm.sh "$results/helm.xml"
    # docs/howto/three-hosts.md, typed word by word into three fresh Debian 12.
    nightly three-hosts 1800 scripts/try_three_hosts.py
    # The library in a web server, with tenants.
    nightly drogon 1800 drogon "$results/drogon.xml"
    # Servers of Debian that exercise something that no other does.
    nightly servers 3600 scripts/servers.py --new --install
}

all_steps
naming=0
for name in "${wanted[@]}"; do
    if [[ " ${steps[*]} " != *" $name "* ]]; then
        echo "nightly: there is no step $name; the steps are: ${steps[*]}" >&2
        exit 2
    fi
done
begin_steps
build_all all
all_steps
finish
