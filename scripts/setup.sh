#!/usr/bin/env bash
# Installs what kvmserver needs on Debian 12. Does nothing when all of it is there.
#   scripts/setup.sh           to build and try kvmserver
#   scripts/setup.sh --demo    also for what scripts/demo.sh builds and counts
#   scripts/setup.sh --tests   also for the tests, the programs in functions/ and the benchmarks; packages of PyPI,
#                              promtool, otlp-receiver, versitygw, etcd, haproxy, caddy and axe-core go into build/ (KVMSERVER_BUILD
#                              names another folder)
#   scripts/setup.sh --nightly also for what only scripts/nightly.sh tests
set -euo pipefail

build_packages=(
    g++ cmake ninja-build pkg-config git
    libcurl4-openssl-dev libsqlite3-dev libzstd-dev libcli11-dev nlohmann-json3-dev libfmt-dev
    libxxhash-dev libseccomp-dev libssl-dev libtomlplusplus-dev catch2
    libboost1.81-dev libboost-context1.81-dev libzydis-dev
    libcurl4 python3 curl ca-certificates
    dpkg-dev file  # the .deb
)
demo_packages=(musl-tools linux-perf)
test_packages=(
    clang libclang-rt-dev llvm clang-format clang-tidy shellcheck codespell python3-pytest python3-pip wrk openssl chromium
    qemu-system-x86 busybox-static cpio e2fsprogs strace
    bochs bochs-term bochsbios vgabios isolinux syslinux-common xorriso  # the emulated Intel host
    debootstrap lintian  # scripts/release.sh
    iproute2     # tests with addresses of their own
    groff-base man-db mandoc
    python3-cryptography  # entries of a cluster of other versions
    ruby php-cli  # tests of uniqueness, and of templates
    python3-venv  # tests of templates
    libbenchmark-dev  # bench/micro
    gdb          # tests of core files and debuggers
    redis-server # test of storage machines
    faketime     # a node whose clock is wrong
)
nightly_packages=(
    patchelf debian-archive-keyring  # CPython 3.13 of scripts/functions.sh
    maven gradle bundler puma ruby-rack  # tests of templates
)

say() { echo "setup: $*" >&2; }

installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# A language that is there already, from wherever, is used as it is.
node_packages() {
    command -v npm >/dev/null || echo npm
    command -v node >/dev/null || echo nodejs
}
toolchain_packages() {
    node_packages
    command -v go >/dev/null || echo golang-go
    command -v cargo >/dev/null || echo cargo-web rustc-web  # bookworm's own cargo cannot fetch from the sparse index
}

nightly_toolchain_packages() { command -v javac >/dev/null || echo openjdk-17-jdk-headless; }

install_missing() {
    local package missing=()
    for package in "$@"; do installed "$package" || missing+=("$package"); done
    if ((${#missing[@]} == 0)); then
        say "all packages are installed"
        return
    fi
    local as_root=()
    if ((EUID != 0)); then
        if ! command -v sudo >/dev/null; then
            say "not root and no sudo; as root: apt-get install ${missing[*]}"
            exit 1
        fi
        as_root=(sudo)
    fi
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
    say "updating the package lists"
    "${apt[@]}" update >&2
    say "installing ${missing[*]}"
    "${apt[@]}" install --no-install-recommends "${missing[@]}" >&2
    say "installed ${#missing[@]} packages"
}

# The packages of PyPI that tests import, all pinned, into a folder of the build.
install_python_packages() {
    local wanted root build
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    build=${KVMSERVER_BUILD:-$root/build}
    wanted=$root/tests/e2e/requirements.txt
    if cmp -s "$wanted" "$build/python/requirements.txt"; then
        say "all Python packages are installed"
        return
    fi
    say "installing Python packages"
    rm -rf "$build/python"
    mkdir -p "$build"
    /usr/bin/python3 -m pip install --quiet --root-user-action ignore --disable-pip-version-check --no-deps \
        --only-binary :all: --target "$build/python" -r "$wanted" >&2
    cp "$wanted" "$build/python/requirements.txt"
}

# promtool alone, out of Debian's package: installing prometheus would start a service and bring 100 MB.
install_promtool() {
    local build folder fetch
    command -v promtool >/dev/null && return
    build=${KVMSERVER_BUILD:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build}
    [[ ! -x $build/promtool ]] || return 0
    say "fetching promtool"
    mkdir -p "$build"
    folder=$(mktemp -d)
    # Its own user, which apt-get takes as root, may not write there.
    fetch=(apt-get -q -y -o APT::Sandbox::User=root download prometheus)
    if ! (cd "$folder" && { "${fetch[@]}" || { ((EUID == 0)) && apt-get -q -y update && "${fetch[@]}"; }; } >&2 &&
        dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool && mv usr/bin/promtool "$build/"); then
        say "promtool could not be fetched: tests of the alert rules are skipped"
    fi
    rm -rf "$folder"
}

# The receiver of OpenTelemetry's collector (tests/collector), for test_traces.py. go.mod pins all versions.
install_otlp_receiver() {
    local root build
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    build=${KVMSERVER_BUILD:-$root/build}
    [[ ! -x $build/otlp-receiver || $root/tests/collector/go.mod -nt $build/otlp-receiver ||
        $root/tests/collector/main.go -nt $build/otlp-receiver ]] || return 0
    say "building otlp-receiver"
    mkdir -p "$build"
    (cd "$root/tests/collector" && go build -buildvcs=false -trimpath -ldflags='-s -w' -o "$build/otlp-receiver" .) >&2 ||
        say "otlp-receiver could not be built: the test of traces with OpenTelemetry's collector is skipped"
}

# The S3 service of tests/e2e/test_chunks_in_s3.py. tests/s3server/go.mod pins all versions.
install_versitygw() {
    local root build
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    build=${KVMSERVER_BUILD:-$root/build}
    [[ ! -x $build/versitygw || $root/tests/s3server/go.mod -nt $build/versitygw ]] || return 0
    say "building versitygw"
    mkdir -p "$build"
    (cd "$root/tests/s3server" && go build -buildvcs=false -trimpath -ldflags='-s -w' -o "$build/versitygw" \
        github.com/versity/versitygw/cmd/versitygw) >&2 ||
        say "versitygw could not be built: the tests of chunks in S3 are skipped"
}

# unpack FOLDER FILE WHAT PACKAGE...: Debian packages below build/FOLDER, without installing them: etcd-server, haproxy
# and caddy would start a service. Nothing is done if FILE is there.
unpack() {
    local folder=${KVMSERVER_BUILD:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build}/$1 file=$2 what=$3 fetched fetch
    shift 3
    [[ ! -x $folder/$file ]] || return 0
    say "fetching $1"
    mkdir -p "$folder"
    fetched=$(mktemp -d)
    # Its own user, which apt-get takes as root, may not write there.
    fetch=(apt-get -q -y -o APT::Sandbox::User=root download "$@")
    if ! (cd "$fetched" && { "${fetch[@]}" || { ((EUID == 0)) && apt-get -q -y update && "${fetch[@]}"; }; } >&2 &&
        for package in *.deb; do dpkg-deb -x "$package" "$folder" || exit 1; done); then
        say "$1 could not be fetched: $what are skipped"
        rm -f "${folder:?}/$file"
    fi
    rm -rf "$fetched"
}

# What tests/e2e/test_ui_access.py runs on the web page.
axe_version=4.14.1
install_axe() {
    local folder=${KVMSERVER_BUILD:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build}/axe
    grep -qsF "\"version\": \"$axe_version\"" "$folder/node_modules/axe-core/package.json" && return
    say "fetching axe-core"
    mkdir -p "$folder"
    npm install --silent --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --prefix "$folder" \
        "axe-core@$axe_version" >&2 || say "axe-core could not be fetched: tests of the page's accessibility are skipped"
}

packages=("${build_packages[@]}")
with_tests=0
case "${1-}" in
    '') ;;
    --demo)
        toolchains=()
        [[ $(node --version 2>/dev/null) == v20.* ]] || mapfile -t toolchains < <(node_packages)
        packages+=("${demo_packages[@]}" "${toolchains[@]}")
        ;;
    --tests)
        with_tests=1
        mapfile -t toolchains < <(toolchain_packages | tr ' ' '\n')
        packages+=("${demo_packages[@]}" "${test_packages[@]}" "${toolchains[@]}")
        ;;
    --nightly)
        with_tests=1
        mapfile -t toolchains < <({ toolchain_packages; nightly_toolchain_packages; } | tr ' ' '\n')
        packages+=("${demo_packages[@]}" "${test_packages[@]}" "${nightly_packages[@]}" "${toolchains[@]}")
        ;;
    *)
        echo "usage: scripts/setup.sh [--demo | --tests | --nightly]" >&2
        exit 2
        ;;
esac
install_missing "${packages[@]}"
if ((with_tests)); then
    install_python_packages
    install_promtool
    install_otlp_receiver
    install_versitygw
    unpack etcd usr/bin/etcd "tests of etcd and of clusters" etcd-server
    unpack haproxy usr/sbin/haproxy "tests of clusters with a load balancer" haproxy liblua5.3-0 libopentracing-c-wrapper0 \
        libopentracing1
    unpack caddy usr/bin/caddy "tests of clusters behind Caddy" caddy
    install_axe
fi
