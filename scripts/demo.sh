#!/usr/bin/env bash
# Shows what kvmserver does, on two small servers: sets up, builds, makes a snapshot of each, serves it with
# a clean machine for every connection, sends real requests, deploys a function, changes it, rolls it back, and stops.
# The first time takes some minutes of compiling (13 on two busy processors), then it is about a minute.
#   scripts/demo.sh            stops everything at the end
#   scripts/demo.sh --keep     leaves the Node server serving, and says how to stop it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
build=${KVMSERVER_BUILD:-$root/build}
kvmserver=$build/bin/kvmserver
work=$build/demo
python=/usr/bin/python3

keep=0
case ${1-} in
    '') ;;
    --keep) keep=1 ;;
    *)
        echo "usage: scripts/demo.sh [--keep]" >&2
        exit 2
        ;;
esac

pids=()
stop_all() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
}
trap stop_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

title() { printf '\n== %s\n' "$*"; }
say() { printf '   %s\n' "$*"; }
die() { printf 'demo: %s\n' "$*" >&2; exit 1; }

# Runs a step that talks much: its output goes to a file and is shown only when it fails.
quietly() {  # WHAT COMMAND...
    local what=$1 log started=$SECONDS
    shift
    log=$work/${what// /-}.log
    say "$what ... (output: ${log#"$root"/})"
    "$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2; die "$what failed"; }
    say "done in $((SECONDS - started)) s"
}

# The same for a build: shows how far ninja is, "[n/m]". A terminal gets one line that is rewritten, anything else a line
# for each tenth.
built() {  # WHAT COMMAND...
    local what=$1 log started=$SECONDS
    shift
    log=$work/${what// /-}.log
    say "$what ... (output: ${log#"$root"/})"
    "$@" 2>&1 | tee "$log" | progress || { tail -n 20 "$log" >&2; die "$what failed"; }
    say "done in $((SECONDS - started)) s"
}

progress() {
    local line tenth told=0
    while IFS= read -r line; do
        [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
        tenth=$((BASH_REMATCH[1] * 10 / BASH_REMATCH[2]))
        if [[ -t 1 ]]; then
            printf '\r\033[K   %s' "${BASH_REMATCH[0]}"
        elif ((tenth > told)); then
            say "${BASH_REMATCH[0]}"
        fi
        told=$tenth
    done
    [[ ! -t 1 ]] || printf '\r\033[K'
}

free_port() { $python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# Waits until the server answers: url, process id, file with its messages.
wait_for() {
    local _
    for _ in $(seq 600); do
        curl -fsS -o /dev/null "$1" 2>/dev/null && return
        kill -0 "$2" 2>/dev/null || { cat "$3" >&2; die "the server ended"; }
        sleep 0.05
    done
    die "the server does not answer at $1"
}

# The five answers to `curl URL`, each on a connection of its own, in one line.
five() {
    local answers=() _
    for _ in 1 2 3 4 5; do answers+=("$(curl -fsS "$1")"); done
    echo "${answers[*]}"
}

# first_reply PORT COMMAND...: milliseconds from the start of the process to its first reply; best of five.
first_reply() {
    $python - "$@" <<'PYTHON'
import http.client, subprocess, sys, time

port, argv = int(sys.argv[1]), sys.argv[2:]

def once() -> float:
    started = time.monotonic()
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while time.monotonic() - started < 30:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            try:
                connection.request("GET", "/")
                if connection.getresponse().status == 200:
                    return (time.monotonic() - started) * 1000
            except OSError:
                if process.poll() is not None:
                    sys.exit("the server ended")
                time.sleep(0.0005)
            finally:
                connection.close()
        sys.exit("the server does not answer")
    finally:
        process.kill()
        process.wait()

print(f"{min(once() for _ in range(5)):.1f}")
PYTHON
}

size_of() { du -h --apparent-size "$1" | cut -f 1; }

# How often one request leaves the machine for our process, counted by the kernel.
exits_per_request() {  # PID URL
    local count out=$work/perf
    command -v perf >/dev/null || { echo "not counted: perf is not installed (scripts/setup.sh --demo)"; return; }
    perf stat -x, -e kvm:kvm_userspace_exit -p "$1" -o "$out" -- \
        sh -c "for i in \$(seq 100); do curl -fsS -o /dev/null -H 'Connection: close' '$2'; done" >/dev/null 2>&1 || true
    count=$(grep kvm_userspace_exit "$out" 2>/dev/null | cut -d, -f 1)
    if [[ $count =~ ^[0-9]+$ ]]; then
        printf '%d.%02d a request: how often a request makes the processor leave its machine for kvmserver\n' \
            $((count / 100)) $((count % 100))
    else
        echo "not counted: perf is not permitted here"
    fi
}

# event FILE TEXT: the message with this text among the events of --json.
event() {
    $python -c '
import json, sys

for event in map(json.loads, open(sys.argv[1])):
    if event["event"] == "message" and sys.argv[2] in event["text"]:
        print(event["text"])' "$@"
}

# How long each phase took, of the events on stdin.
phases_of() {
    $python -c '
import json, sys

seconds = {}
for line in sys.stdin:
    event = json.loads(line)
    if event["event"] == "phase" and event["state"] == "done":
        took, sent = event["seconds"], event.get("done")
        seconds[event["phase"]] = f"{took:.1f} s" + (f", {sent:,} requests" if sent else "")
for phase, text in [("boot", "boot, until it waited for its first connection"),
                    ("warm-up", "warm-up: caches are filled, and code is compiled, before the machine is saved"),
                    ("check", "check that a clean machine answers"),
                    ("save", "compress the file hard (deploy does this later, in the background)")]:
    if phase in seconds:
        print(f"   {seconds[phase]:<22} {text}")'
}

# show NAME WORDS...: one program from its plain form to a restored snapshot.
show() {
    local name=$1 path=$2 port url snapshot pid bare_port
    local program=("${@:3}")
    snapshot=$work/$name.snap

    title "$name: the plain program"
    bare_port=$(free_port)
    "${program[@]}" "$bare_port" >"$work/$name.bare.log" 2>&1 &
    pid=$!
    pids+=("$pid")
    wait_for "http://127.0.0.1:$bare_port/" "$pid" "$work/$name.bare.log"
    say "\$ ${path} $bare_port"
    say "GET /       $(curl -fsS "http://127.0.0.1:$bare_port/")"
    say "GET /count  $(five "http://127.0.0.1:$bare_port/count")     <- a counter in its memory: requests see each other"
    kill "$pid"
    wait "$pid" 2>/dev/null || true

    title "$name: boot it in a machine, warm it up, save the machine"
    port=$(free_port)
    say "\$ kvmserver snapshot --allow-all -w auto -o $name.snap $path $port"
    "$kvmserver" snapshot --json --allow-all -w auto -o "$snapshot" "${program[@]}" "$port" >"$work/$name.events" ||
        { cat "$work/$name.events" >&2; die "no snapshot"; }
    phases_of <"$work/$name.events"
    say "$(event "$work/$name.events" ': warm-up: ')"
    say "the file has $(size_of "$snapshot")"

    title "$name: serve it, a clean machine for every connection"
    url=http://127.0.0.1:$port
    say "\$ kvmserver snaprun -e -t 2 $name.snap"
    "$kvmserver" snaprun -e -t 2 "$snapshot" >"$work/$name.out" 2>"$work/$name.err" &
    pid=$!
    pids+=("$pid")
    wait_for "$url/" "$pid" "$work/$name.err"
    say "$(grep -m 1 '^Program ' "$work/$name.out")"
    say "GET /       $(curl -fsS "$url/")"
    say "GET /count  $(five "$url/count")     <- each request has a machine that nobody used before"
    [[ $(five "$url/count") == "1 1 1 1 1" ]] || die "requests see each other"
    curl -s -o /dev/null "$url/crash" || true
    say "GET /crash  the program crashes, the connection closes"
    say "GET /count  $(curl -fsS "$url/count")             <- the next request has a clean machine again"
    say "exits       $(exits_per_request "$pid" "$url/")"
    serving=$pid serving_url=$url
}

mkdir -p "$work"
# deploy_demo: a function in a store of its own: deployed, changed, rolled back.
deploy_demo() {
    local port store=$work/store folder=$work/hello pid url
    rm -rf "$store" "$folder"
    port=$(free_port)
    url=http://hello.localhost:$port
    title "A function: deploy it, change it, roll it back"
    say "\$ kvmserver serve --listen 127.0.0.1:$port &"
    "$kvmserver" serve --store "$store" --listen "127.0.0.1:$port" >"$work/serve.out" 2>"$work/serve.err" &
    pid=$!
    pids+=("$pid")
    wait_for_line "$work/serve.out" '^Serving' "$pid" "$work/serve.err"
    say "\$ kvmserver init --template c hello && cd hello"
    "$kvmserver" init --template c "$folder" >"$work/init.out" 2>&1 || { cat "$work/init.out" >&2; die "init failed"; }
    deployed "$store" "$folder"
    say "\$ curl $url          $(curl -fsS "$url")"
    say "\$ sed -i s/Hello/Hi/ server.c"
    sed -i s/Hello/Hi/ "$folder/server.c"
    deployed "$store" "$folder"
    say "\$ curl $url          $(curl -fsS "$url")"
    say "\$ kvmserver rollback hello"
    say "$("$kvmserver" rollback hello -y --store "$store")"
    say "\$ curl $url          $(curl -fsS "$url")     <- the first version again, at once"
    kill "$pid"
    wait "$pid" 2>/dev/null || true
}

deployed() {  # STORE FOLDER
    say "\$ kvmserver deploy"
    "$kvmserver" deploy "$2" --store "$1" >"$work/deploy.out" 2>"$work/deploy.err" ||
        { cat "$work/deploy.err" >&2; die "deploy failed"; }
    say "$(cat "$work/deploy.out")"
}

# Waits until a line of FILE is like PATTERN: file, pattern, process id, file with its messages.
wait_for_line() {
    local _
    for _ in $(seq 600); do
        ! grep -q "$2" "$1" || return 0
        kill -0 "$3" 2>/dev/null || { cat "$4" >&2; die "the process ended"; }
        sleep 0.05
    done
    die "$1 never says $2"
}

title "Set up and build (the first time some minutes, 13 on two busy processors)"
quietly "set up" scripts/setup.sh --demo
[[ -e /dev/kvm ]] || die "/dev/kvm is missing: this machine offers no KVM"
[[ -r /dev/kvm && -w /dev/kvm ]] || die "/dev/kvm is not permitted: sudo usermod -aG kvm \$USER, then log in again"
built "build" scripts/build.sh kvmserver
quietly "sample programs" scripts/functions.sh c-epoll node-http
mapfile -t node < <($python -c '
import json, sys
for program in json.load(open(sys.argv[1])):
    if program["name"] == "node-http":
        print(*program["argv"][:2], sep="\n")' build/functions/programs.json)

show c-epoll c-epoll build/functions/c-epoll/c-epoll
show node-http "node server.js" "${node[@]}"

title "Time from the start of a new process to its first reply (best of five, one after the other)"
port=$(free_port)
bare=$(first_reply "$port" "${node[@]}" "$port")
port=$(free_port)
restored=$(first_reply "$port" "$kvmserver" snaprun -e --listen "127.0.0.1:$port" "$work/node-http.snap")
say "node server.js                  $bare ms"
say "kvmserver snaprun -e            $restored ms     <- $($python -c "print(f'{$bare / $restored:.1f}')") times as fast"

deploy_demo

if ((keep)); then
    title "Still serving"
    say "$serving_url/   (try: curl $serving_url/count)"
    say "stop it: kill $serving"
    for pid in "${pids[@]}"; do [[ $pid == "$serving" ]] || kill "$pid" 2>/dev/null || true; done
    pids=()
    disown -a
else
    title "Done"
    say "everything is stopped; the files are in ${work#"$root"/}"
fi
title "Next"
say "your first function, as above, in a folder of your own:    README.md#your-first-function"
say "    export PATH=${build}/bin:\$PATH"
say "    kvmserver serve &"
say "    kvmserver init --template node hello && cd hello && kvmserver deploy    # all templates: init --list"
say "step by step, with a fault, its rollback and a database:   docs/TUTORIAL.md"
