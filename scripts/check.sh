#!/usr/bin/env bash
# What a change must keep: include direction, shell and Python scripts, format, spelling and, with --tidy, clang-tidy.
#   scripts/check.sh [--tidy] [--fix]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tidy=0 fix=0
for option in "$@"; do
    case $option in
        --tidy) tidy=1 ;;
        --fix) fix=1 ;;
        *)
            echo "usage: scripts/check.sh [--tidy] [--fix]" >&2
            exit 2
            ;;
    esac
done

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
report() {  # NAME STATUS
    if (($2 == 0)); then echo "ok     $1"; else echo "FAILED $1"; failed=1; fi
}

status=0
tests/include_direction.py --self-test && tests/include_direction.py || status=1
report "include direction" "$status"

# Without the tool nothing is known, so nothing is right.
needs() {  # TOOL CHECK
    command -v "$1" >/dev/null && return
    echo "       $1 is not installed: scripts/setup.sh --tests"
    report "$2" 1
    return 1
}

if needs shellcheck "shell scripts"; then
    status=0
    git ls-files '*.sh' .ci/run | xargs shellcheck -x -S warning || status=1
    report "shell scripts" "$status"
fi

status=0
git ls-files '*.py' | xargs /usr/bin/python3 -m py_compile || status=1
report "python" "$status"

status=0
scripts/syscalls.py --check || status=1
report "system call table" "$status"

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

if ((tidy)); then
    if command -v clang-tidy >/dev/null && [[ -e build/compile_commands.json ]]; then
        status=0
        sources | grep '\.cpp$' | xargs -P "$(nproc)" -n 4 clang-tidy -p build --quiet || status=1
        report "clang-tidy" "$status"
    else
        echo "skip   clang-tidy: it is not installed, or build/compile_commands.json is missing"
    fi
fi
exit "$failed"
