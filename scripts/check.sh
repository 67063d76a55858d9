#!/usr/bin/env bash
# What a change must keep: include direction, format and, with --tidy, clang-tidy of the files that differ from main.
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

failed=0
report() {  # NAME STATUS
    if (($2 == 0)); then echo "ok     $1"; else echo "FAILED $1"; failed=1; fi
}

status=0
tests/include_direction.py --self-test && tests/include_direction.py || status=1
report "include direction" "$status"

status=0
while IFS= read -r script; do bash -n "$script" || status=1; done < <(git ls-files '*.sh' .ci/run)
if command -v shellcheck >/dev/null; then
    git ls-files '*.sh' .ci/run | xargs shellcheck -x -S warning || status=1
fi
report "shell scripts" "$status"

status=0
git ls-files '*.py' | xargs /usr/bin/python3 -m py_compile || status=1
report "python" "$status"

sources() { git ls-files 'tinykvm/*.[ch]pp' 'src/*.[ch]pp' 'tests/*.[ch]pp'; }
if command -v clang-format >/dev/null; then
    status=0
    if ((fix)); then sources | xargs clang-format -i; else sources | xargs clang-format --dry-run -Werror 2>&1 | tail -20 || status=1; fi
    report "format" "$status"
else
    echo "skip   format: clang-format is not installed"
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
