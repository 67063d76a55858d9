#!/usr/bin/env bash
# Checks the emulated host itself. Called by hwhost.sh --self-test with its own path, the cache and the vendor.
set -uo pipefail

hwhost=$1 cache=$2 vendor=$3
helpers=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d "$cache/self_test.XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

# check NAME EXPECTED ACTUAL
check() {
  if [[ $2 == "$3" ]]; then
    echo "ok      $1"
  else
    echo "FAILED  $1: expected '$2', got '$3'"
    failures=$((failures + 1))
  fi
}

# in_host ARGS...: leaves $status, $work/out and $work/err.
in_host() {
  "$hwhost" --vendor "$vendor" "$@" >"$work/out" 2>"$work/err"
  status=$?
}

cc -O2 -Wall -Wextra -static -o "$work/kvm_smoke" "$helpers/kvm_smoke.c" || exit 1

in_host -v --add "$work/kvm_smoke:/smoke" -- /smoke 10000
check "status of kvm_smoke" 0 "$status"
check "a KVM machine runs" "kvm ok" "$(grep -o '^kvm ok' "$work/out")"
sed 's/^/        /' "$work/out" "$work/err"

in_host -- sh -c 'exit 7'
check "exit status" 7 "$status"
check "nothing on stdout" "" "$(cat "$work/out")"
check "nothing on stderr" "" "$(cat "$work/err")"

# Streams apart and byte for byte, libraries of a dynamic program, links and modes of a folder,
# arguments as they are, a path below /tmp, a variable.
mkdir -p "$work/folder/deep"
head -c 3000000 /dev/urandom >"$work/folder/deep/random"
ln -s deep/random "$work/folder/link"
# shellcheck disable=SC2016
printf '#!/bin/sh\necho script "$1"\n' >"$work/folder/script"
chmod 750 "$work/folder/script"
dynamic=$(type -P xz)
# shellcheck disable=SC2016
in_host --add "$work/folder" --add "$work/folder/script:/tmp/a/script" --add "$dynamic:/opt/dynamic" \
  --env "GREETING=it's \$HOME" --cwd "$work/folder" -- sh -c '
    cat link
    {
      echo "$GREETING|$1|$(pwd)|$(stat -c %a script)|$(readlink link)"
      /tmp/a/script works
      /opt/dynamic --version | head -n 1 | cut -d " " -f 1
      touch /tmp/new /dev/shm/new && ping -c 1 -W 2 localhost >/dev/null && echo loopback
    } >&2' sh "two  words * '\"\\"
check "status of the stream test" 0 "$status"
check "stdout byte for byte" "$(sha256sum <"$work/folder/deep/random")" "$(sha256sum <"$work/out")"
check "stderr and what it tells" \
  "it's \$HOME|two  words * '\"\\|$work/folder|750|deep/random
script works
xz
loopback" "$(cat "$work/err")"

in_host --timeout 3 -- sh -c 'echo before; sleep 100'
check "time-out" 124 "$status"
check "stdout before the time-out" before "$(cat "$work/out")"

in_host -- sh -c 'kill -9 $$'
check "killed by a signal" 137 "$status"

in_host -- /no/such/program
check "missing program" 127 "$status"

in_host -- sh -c 'sync; echo c >/proc/sysrq-trigger'
check "crash of the emulated host" 125 "$status"

in_host --add /no/such/path -- true
check "missing path" 125 "$status"

if [[ -x /usr/bin/python3 ]]; then
  in_host --with-python -- python3 -c 'import ssl, sqlite3, socket, asyncio, sys; print("python ok"); sys.exit(3)'
  check "python" "3 python ok" "$status $(cat "$work/out")"
fi

((failures == 0)) && echo "all ok"
exit $((failures > 0))
