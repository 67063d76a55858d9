#!/usr/bin/env bash
# Makes a release, build/release/kvmserver-VERSION/:
#   kvmserver_VERSION_amd64.deb                   for Debian 12, Ubuntu 24.04 and newer, which lintian accepts
#   kvmserver-VERSION-linux-x86_64.tar.gz         for glibc 2.31 and newer: Debian 11, Ubuntu 20.04, RHEL 9
#   (both names).cdx.json                         what is linked into each, CycloneDX
#   install.sh, CHANGELOG.md, THIRD_PARTY_NOTICES, SHA256SUMS
# In the portable binary our objects and the static libraries are those of scripts/build.sh; they are linked with
# Debian 11's C library, which gives each symbol the version that it had there, and packaging/old_glibc.c stands in for
# what is newer.
#   scripts/release.sh            only makes it
#   scripts/release.sh --check    and tries the portable binary in a Debian 11, with /dev/kvm
# It is VERSION of CMakeLists.txt if the commit has the tag vVERSION, and VERSION-dev otherwise.
# Needs root: debootstrap makes that Debian 11 in build/release/bullseye, once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${KVMSERVER_BUILD:-$PWD/build}
release=$build/release
old=$release/bullseye
newest_glibc=2.31

say() { echo "release: $*" >&2; }
die() { say "$*"; exit 1; }

make_old_system() {
    [[ -e $old/made ]] && return
    [[ $(type -P debootstrap) ]] || die "debootstrap is not installed: scripts/setup.sh --tests"
    rm -rf "$old"
    say "making a Debian 11 in $old"
    debootstrap --variant=minbase --include=libc6-dev,libcurl4,ca-certificates bullseye "$old" \
        http://deb.debian.org/debian >"$release/debootstrap.log" 2>&1 ||
        die "debootstrap failed: $(tail -n 2 "$release/debootstrap.log")"
    rm -rf "$old"/var/cache/apt/archives/*.deb
    # Its absolute links would lead the linker out of it.
    local link
    find "$old/usr/lib64/" "$old/usr/lib/x86_64-linux-gnu/" -maxdepth 1 -lname '/*' | while read -r link; do
        ln -sfrT "$old$(readlink "$link")" "$link"
    done
    touch "$old/made"
}

# No symbol and no library that the old system does not have.
check_symbols() {
    local newer needed
    # Those that sort behind it.
    newer=$({ objdump -T "$1" | grep -o 'GLIBC_[0-9.]*[0-9]'; echo "GLIBC_$newest_glibc"; } | sort -uV |
        sed "1,/^GLIBC_$newest_glibc\$/d")
    [[ -z $newer ]] || die "$1 needs ${newer//$'\n'/ }"
    needed=$(objdump -p "$1" | sed -n 's/^ *NEEDED *//p' |
        grep -vxE 'lib(c|m|dl|pthread|rt)\.so\.[0-9]+|ld-linux-x86-64\.so\.2' || true)
    [[ -z $needed ]] || die "$1 needs ${needed//$'\n'/ }"
    say "needs $(objdump -T "$1" | grep -o 'GLIBC_[0-9.]*[0-9]' | sort -uV | tail -n 1)"
}

value_of() { sed -n "s/^set($1 \"\(.*\)\")\$/\1/p" "$build/version/version.cmake"; }

build_all() {
    scripts/build.sh kvmserver >"$release/build.log" || die "see $release/build.log"
    cmake -S . -B "$build" -DKVMSERVER_OLD_ROOT="$old" >>"$release/build.log"
    ninja -C "$build" kvmserver_portable >>"$release/build.log" || die "see $release/build.log"
    check_symbols "$build/portable/kvmserver"
    version=$(value_of KVMSERVER_VERSION)
    # The same commit gives the same files.
    SOURCE_DATE_EPOCH=$(date -d "$(value_of KVMSERVER_DATE) UTC" +%s)
    export SOURCE_DATE_EPOCH
    say "$("$build/bin/kvmserver" version)"
    case $version in
        *-dev) say "no release: this commit has no tag v${version%-dev}, or files are modified" ;;
        *) grep -q "^## $version (20[0-9-]*)" CHANGELOG.md || die "CHANGELOG.md has no section '## $version (DATE)'" ;;
    esac
    folder=$release/kvmserver-$version
    rm -rf "$folder"
    mkdir "$folder"
}

make_deb() {
    local file
    rm -rf "$release/deb"
    (cd "$build" && cpack -G DEB -B "$release/deb") >>"$release/build.log" 2>&1 || die "see $release/build.log"
    file=$(echo "$release"/deb/*.deb)
    [[ $(type -P lintian) ]] || die "lintian is not installed: scripts/setup.sh --tests"
    lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$file" >&2 || die "lintian refuses $file"
    mv "$file" "$folder/"
    rm -rf "$release/deb"
    file=$folder/${file##*/}
    scripts/third_party.py --sbom "$file.cdx.json" --of "$file" >&2
    say "made $file"
}

make_archive() {
    local name tree
    name=kvmserver-$version-linux-x86_64
    tree=$release/$name
    rm -rf "$tree"
    cmake --install "$build" --prefix "$tree" >>"$release/build.log"
    # The unit's paths are those of /usr/local, where the archive is meant to be unpacked.
    DESTDIR=$release/at cmake --install "$build" --prefix /usr/local >>"$release/build.log"
    cp "$release/at/usr/local/lib/systemd/system/kvmserver.service" "$tree/lib/systemd/system/"
    rm -rf "$release/at"
    install -s "$build/portable/kvmserver" "$tree/bin/kvmserver"
    archive=$folder/$name.tar.gz
    tar -C "$release" --owner=0 --group=0 --numeric-owner --sort=name --mtime "@$SOURCE_DATE_EPOCH" \
        -c "$name" | gzip -9n >"$archive"
    rm -rf "$tree"
    scripts/third_party.py --sbom "$archive.cdx.json" --of "$archive" --target kvmserver_portable --root "$old" >&2
    say "made $archive ($(($(stat -c %s "$archive") >> 10)) KiB)"
}

make_sums() {
    cp packaging/install.sh CHANGELOG.md THIRD_PARTY_NOTICES "$folder/"
    (cd "$folder" && sha256sum -- * >SHA256SUMS)
    say "made $folder: $(wc -l <"$folder/SHA256SUMS") files and SHA256SUMS"
}

# Before a command: in the old system, with this one's devices and network; its mounts go with it. It stays one process,
# which can be killed.
in_old=(unshare --mount --propagation private sh -ec '
    mount -t proc proc "$1/proc"
    mount --rbind /dev "$1/dev"
    root=$1
    shift
    cd /
    exec chroot "$root" "$@"' sh "$old")

expect() { # NAME EXPECTED ACTUAL
    [[ $3 == *"$2"* ]] || die "FAILED $1: '$2' is not in '$3'"
    say "ok: $1"
}

check_in_old_system() {
    local bin=/opt/kvmserver/bin/kvmserver port server answer=''
    rm -rf "$old/opt/kvmserver"
    mkdir -p "$old/opt/kvmserver"
    tar -C "$old/opt/kvmserver" --strip-components 1 -xzf "$archive"
    cp "$build/functions/c-epoll/c-epoll" "$old/opt/server"
    expect "glibc" "2.31" "$("${in_old[@]}" ldd --version | head -n 1)"
    expect "version" "kvmserver" "$("${in_old[@]}" "$bin" version)"
    expect "doctor" "/dev/kvm ok" "$("${in_old[@]}" "$bin" doctor || true)"
    expect "a program of that system" "42" "$("${in_old[@]}" "$bin" run --allow-all /usr/bin/perl -e 'print 6 * 7')"
    expect "an exception" "not-there" "$("${in_old[@]}" "$bin" run --allow-all /not-there 2>&1 || true)"
    expect "libcurl" "Failed to connect" "$("${in_old[@]}" "$bin" list --remote http://127.0.0.1:1 2>&1 || true)"
    port=$((20000 + RANDOM % 10000))
    "${in_old[@]}" "$bin" snapshot --allow-all -o /opt/server.snap /opt/server "$port" >/dev/null
    "${in_old[@]}" "$bin" snaprun -e --check-reset --listen "127.0.0.1:$port" /opt/server.snap &
    server=$!
    trap 'kill "$server" 2>/dev/null || true' EXIT
    for _ in {1..100}; do
        answer=$(curl -s --max-time 5 "http://127.0.0.1:$port/count" || true)
        [[ -z $answer ]] || break
        sleep 0.1
    done
    expect "a snapshot answers" "1" "$answer$(curl -s --max-time 5 "http://127.0.0.1:$port/count")"
    kill "$server"
    trap - EXIT
    wait "$server" || die "FAILED: snaprun ended with status $?"
    say "ok: it ends"
}

case ${1-} in
    '' | --check) ;;
    *) die "usage: scripts/release.sh [--check]" ;;
esac
((EUID == 0)) || die "needs root (debootstrap, chroot)"
mkdir -p "$release"
make_old_system
build_all
scripts/third_party.py --check >&2
make_deb
make_archive
make_sums
if [[ ${1-} == --check ]]; then check_in_old_system; fi
