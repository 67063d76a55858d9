#!/usr/bin/env bash
# What a change must keep.
#   scripts/check.sh [--fix]         include direction, shell and Python scripts, marks of a merge, system call table,
#                                    documents, format, spelling
#   scripts/check.sh --tidy          clang-tidy alone, over all of src/ and tinykvm/: half an hour of a processor
#   scripts/check.sh --tidy=recent   clang-tidy over what changed recently, and the guest kernel
# clang-tidy needs a configured build/ (KVMSERVER_BUILD names another folder). It leaves out tests/ and bench/: in 20 files
# of tests/ it found six things, none of them an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tidy='' fix=0
case $#${1-} in
    0) ;;
    1--fix) fix=1 ;;
    1--tidy) tidy=all ;;
    1--tidy=recent) tidy=recent ;;
    *)
        echo "usage: scripts/check.sh [--fix | --tidy | --tidy=recent]" >&2
        exit 2
        ;;
esac

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
report() {  # NAME STATUS
    if (($2 == 0)); then echo "ok     $1"; else echo "FAILED $1"; failed=1; fi
}

# Without the tool nothing is known, so nothing is right.
needs() {  # TOOL CHECK
    command -v "$1" >/dev/null && return
    echo "       $1 is not installed: scripts/setup.sh --tests"
    report "$2" 1
    return 1
}

# The guest kernel and the vDSO have flags of their own, which CMake writes beside their objects.
guest_kernel_sources() { git ls-files 'tinykvm/guest/*.cpp' | grep -v '/embed\.cpp$'; }
vdso_source=tinykvm/elf/vdso/guest.cpp
host_sources() { git ls-files 'src/*.cpp' 'tinykvm/*.cpp' | grep -vxF -e "$vdso_source" -f <(guest_kernel_sources); }

# What the working tree changed, then the last 15 commits, the newest first.
recently_changed() {
    { git diff --name-only HEAD && git log -15 --format= --name-only; } | awk '!seen[$0]++' | grep -xFf <(host_sources)
}

tidy_each() {  # BUILD [--checks=…] FILE…
    local build=$1 options=()
    shift
    if [[ ${1-} == --checks=* ]]; then
        options=("$1")
        shift
    fi
    (($# == 0)) || printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 clang-tidy -p "$build/files" --quiet "${options[@]}"
}

# A file that is in no target of this build is compiled like the one whose name is the most like its own.
clang_tidy() {
    local build=${KVMSERVER_BUILD:-build} most=6 host=() rest=() guest=() status=0
    needs clang-tidy clang-tidy || return 0
    if [[ ! -e $build/compile_commands.json || ! -e $build/tinykvm/guest/compile_flags.txt ]]; then
        echo "       $build has no compile_commands.json, or an old one: scripts/setup.sh --tests && scripts/build.sh"
        report clang-tidy 1
        return
    fi
    scripts/file_commands.py "$build"
    if [[ $tidy == recent ]]; then
        mapfile -t host < <(recently_changed)
    else
        mapfile -t host < <(host_sources)
        most=${#host[@]}
    fi
    mapfile -t guest < <(guest_kernel_sources)
    rest=("${host[@]:most}")
    host=("${host[@]:0:most}")
    echo "       clang-tidy: ${#host[@]} files and ${#guest[@]} of the guest kernel"
    ((${#rest[@]} == 0)) || echo "       clang-tidy: left to scripts/nightly.sh: ${#rest[@]} that changed recently, too;" \
        "they must compile alone"
    {
        clang-tidy -p "$build/tinykvm/guest" --quiet "${guest[@]}" || status=1
        clang-tidy -p "$build/tinykvm/elf" --quiet "$vdso_source" || status=1
        tidy_each "$build" "${host[@]}" || status=1
        # Our builds compile many files as one, where an #include that is missing is not missed. One quick check stands for
        # none, which clang-tidy refuses.
        tidy_each "$build" --checks='-*,clang-diagnostic-error,bugprone-swapped-arguments' "${rest[@]}" || status=1
    } >"$log" 2>&1
    grep -vE '^[0-9]+ warnings? generated|^Suppressed ' "$log" | head -n 200 || true
    report "clang-tidy" "$status"
}
if [[ $tidy ]]; then
    clang_tidy
    exit "$failed"
fi

status=0
tests/include_direction.py --self-test && tests/include_direction.py || status=1
report "include direction" "$status"

if needs shellcheck "shell scripts"; then
    status=0
    git ls-files '*.sh' .ci/run | xargs shellcheck -x -S warning || status=1
    report "shell scripts" "$status"
fi

status=0
git ls-files '*.py' | xargs /usr/bin/python3 -m py_compile || status=1
report "python" "$status"

status=0
if git grep -nE '^(<{7}|>{7}) '; then status=1; fi
report "no marks of a merge" "$status"

status=0
scripts/syscalls.py --check || status=1
report "system call table" "$status"

status=0
scripts/check_docs.py --self-test && scripts/check_docs.py || status=1
report "documents" "$status"

sources() { git ls-files 'tinykvm/*.[ch]pp' 'src/*.[ch]pp' 'tests/*.[ch]pp' 'bench/*.[ch]pp'; }
if needs clang-format format; then
    status=0
    if ((fix)); then sources | xargs clang-format -i; fi
    sources | xargs clang-format --dry-run -Werror >"$log" 2>&1 || status=1
    head -n 20 "$log"
    # What it cannot break: strings and tables.
    sources | xargs awk 'length > 120 { print FILENAME ":" FNR ": longer than 120 columns"; long = 1 } END { exit long }' || status=1
    report "format" "$status"
fi

if needs codespell spelling; then
    status=0
    git ls-files | grep -v '^tests/fuzz/seeds' | xargs codespell || status=1
    report "spelling" "$status"
fi

exit "$failed"
