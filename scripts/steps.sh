# shellcheck shell=bash
# What scripts/test.sh and scripts/nightly.sh share: steps with a time limit, whose results scripts/test_results.py adds
# up, and the steps that both run. Sourced, in the root folder, after `results` (a folder) is set.
export KVMSERVER_BUILD=${KVMSERVER_BUILD:-$PWD/build}
build=$KVMSERVER_BUILD
root=$PWD
python=/usr/bin/python3
export root build results python

begin_steps() {
    rm -rf "$results"
    mkdir -p "$results"
    started=$SECONDS
}

say() { printf '[%3d s] %s\n' $((SECONDS - started)) "$*"; }

finish() {
    say "results"
    exec $python scripts/test_results.py "$results"
}

# step NAME LIMIT COMMAND...: runs it for LIMIT seconds at most, keeps its output and its status. A test that writes
# JUnit's XML puts it into $results/NAME.xml.
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

# step_function NAME LIMIT FUNCTION ARGUMENTS...: the same for a function of this shell (export -f) or a command, in a
# process of its own.
step_function() {
    local name=$1 limit=$2
    shift 2
    step "$name" "$limit" bash -c '"$@"' step "$@"
}

# What everything else stands on: without it there is nothing to test.
must() { step "$@" || finish; }

skip() { echo "skipped $2" >"$results/$1.status"; }

# build_all TARGET...
build_all() {
    local options=()
    must setup 900 scripts/setup.sh --tests
    must functions 1800 scripts/functions.sh
    # More source files compiled as one are quicker for all, and slower for a change: only where nothing is built yet.
    [[ -e $build/CMakeCache.txt ]] || options=(-DCMAKE_UNITY_BUILD_BATCH_SIZE=24)
    must build 1800 scripts/build.sh "${options[@]}" "$@"
}

# units PREFIX LIMIT FOLDER: the Catch2 programs of a build, a step PREFIX-NAME each.
units() {
    local prefix=$1 limit=$2 folder=$3 program name
    while read -r program; do
        name=$prefix$(basename "$program")
        step "$name" "$limit" "$program" -r junit -o "$results/$name.xml"
    done < <(find "$folder" \( -path "$folder/fuzz*" -o -path "$folder/threads" -o -path "$folder/python" \) -prune -o -type f -name 'test_*' -perm -u+x -not -path '*/CMakeFiles/*' -print |
        sort)
}

# How much longer tests may take there, by the clock there: Bochs' own counts its instructions.
slowness_of() { if [[ $1 == intel ]]; then echo 2; else echo 20; fi; }

# emulated_machine VENDOR XML OPTIONS...: the tests of machines in an emulated host, with these options of hwhost.sh.
emulated_machine() {
    local vendor=$1 xml=$2 wanted=()
    shift 2
    # What every host has alike takes an emulated processor minutes, too.
    [[ ${KVMSERVER_TESTS-} == all ]] || wanted=('~[alike]')
    scripts/hwhost.sh --vendor "$vendor" --timeout 1500 --env "E2E_SLOWNESS=$(slowness_of "$vendor")" \
        --env "KVMSERVER_TESTS=${KVMSERVER_TESTS:-}" \
        --add "$build/tests/kvm" "$@" -- "$build/tests/kvm/test_machine" -r junit "${wanted[@]}" >"$xml"
}

# emulated_e2e VENDOR XML PROGRAMS PYTEST-WORDS...: end-to-end tests there, with some programs of functions/ (a,b,c).
emulated_e2e() {
    local vendor=$1 xml=$2 programs=$3 name adds=() node
    shift 3
    # Only to look through the other files takes an emulated processor minutes.
    [[ ${1-} != tests/e2e ]] || set -- "$(grep -l emulated tests/e2e/test_*.py | tr '\n' ' ')" "${@:2}"
    [[ $* != *test_syscalls* ]] || adds+=(--add "$build/tests/syscalls") # 50 MiB
    for name in ${programs//,/ }; do adds+=(--add "$root/build/functions/$name"); done
    if [[ $programs == *node* ]]; then
        node=$($python -c '
import json, sys
for program in json.load(open(sys.argv[1])):
    if program["name"] == "node-http":
        print(program["argv"][0])' "$root/build/functions/programs.json")
        adds+=(--add "$node")
    fi
    scripts/hwhost.sh --vendor "$vendor" --timeout "${EMULATED_LIMIT:-2700}" --with-python --cwd "$root" \
        --env "KVMSERVER_BUILD=$build" --env "E2E_SLOWNESS=$(slowness_of "$vendor")" \
        --env "KVMSERVER_TESTS=${KVMSERVER_TESTS:-}" \
        --env "ODD_EXITS=${ODD_EXITS:-3}" --env "ODD_KINDS=${ODD_KINDS:-}" "${adds[@]}" \
        --add "$root/build/functions/programs.json" --add "$root/functions/check.py" --add "$root/functions/samples.py" \
        --add "$root/tests" --add "$build/bin" --add "$build/tests/e2e" -- \
        sh -c "python3 -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short $* --emulated \
               --programs $programs --junitxml=/tmp/results.xml >&2
               status=\$?; cat /tmp/results.xml; exit \$status" >"$xml"
}
export -f slowness_of emulated_machine emulated_e2e
