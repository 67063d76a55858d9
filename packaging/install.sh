#!/bin/sh
# Installs kvmserver on Debian 12, Ubuntu 22.04 and newer, from a release that scripts/release.sh made.
#   install.sh WHERE               a folder or an https:// address that holds a release: takes the package that fits
#   install.sh FILE                a .deb or .tar.gz of a release, also as an address
#   install.sh --uninstall         removes the program; functions in /var/lib/kvmserver are kept
#     --sha256 HASH                what FILE must have; otherwise SHA256SUMS beside it says so
#     --without-kvm                goes on without a usable /dev/kvm, as when an image is made
# A second run with the same release changes nothing. A newer release replaces an older one.
set -eu

prefix=/usr/local
own=$prefix/share/kvmserver
list=$own/installed-files # of the .tar.gz
folders=$own/installed-folders # that were not there before
work=''

say() { echo "install.sh: $*"; }
die() {
    echo "install.sh: $*" >&2
    exit 1
}
clean_up() { [ -z "$work" ] || rm -rf "$work"; }
has() { command -v "$1" >/dev/null 2>&1; }
package_installed() {
    has dpkg-query && [ "$(dpkg-query -W -f '${db:Status-Status}' kvmserver 2>/dev/null)" = installed ]
}
systemd_runs() { [ -d /run/systemd/system ] && has systemctl; }
newer_or_same() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; } # $1 >= $2

check_host() {
    [ "$(uname -s)" = Linux ] || die "kvmserver needs Linux, this is $(uname -s)"
    [ "$(uname -m)" = x86_64 ] || die "kvmserver needs x86-64, this host is $(uname -m)"
    [ "$(id -u)" = 0 ] || die "run it as root: sudo sh install.sh ..."
    glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d ' ' -f 2) || glibc=''
    [ -n "$glibc" ] || die "kvmserver needs glibc, which this system does not have"
    newer_or_same "$glibc" 2.31 || die "kvmserver needs glibc 2.31 or newer, this system has $glibc"
    [ -z "$without_kvm" ] || return 0
    [ -e /dev/kvm ] || die "there is no /dev/kvm: modprobe kvm_intel or kvm_amd, or enable virtualisation \
in the firmware or for this virtual machine; --without-kvm goes on without"
    [ -c /dev/kvm ] || die "/dev/kvm is not a device"
    (: <>/dev/kvm) 2>/dev/null ||
        die "/dev/kvm cannot be opened, even by root: is this a container without --device /dev/kvm?"
}

fetch() { # FROM TO
    case $1 in
        https://*) ;;
        http://*) [ -n "$hash" ] || die "$1: over http the sum must be given: --sha256 HASH" ;;
        *)
            [ -f "$1" ] || die "there is no file $1"
            cp "$1" "$2" || die "$1 cannot be copied"
            return 0
            ;;
    esac
    if has curl; then
        curl -fsSL --retry 2 -o "$2" "$1" || die "$1 cannot be fetched"
    elif has wget; then
        wget -q -O "$2" "$1" || die "$1 cannot be fetched"
    else
        die "neither curl nor wget is installed: apt-get install curl"
    fi
}

# Which file of a release fits this host: the .deb was linked with Debian 12's C library.
choose() { # reads SHA256SUMS
    debs=$(sed -n 's/^[0-9a-f]\{64\}  \(kvmserver_[^/ ]*_amd64\.deb\)$/\1/p' "$work/SHA256SUMS")
    archives=$(sed -n 's/^[0-9a-f]\{64\}  \(kvmserver-[^/ ]*-linux-x86_64\.tar\.gz\)$/\1/p' "$work/SHA256SUMS")
    if has apt-get && newer_or_same "$glibc" 2.36; then echo "$debs"; else echo "$archives"; fi | head -n 1
}

get_file() { # sets $file, whose sum is right
    case $where in
        *.deb | *.tar.gz) ;;
        *)
            fetch "${where%/}/SHA256SUMS" "$work/SHA256SUMS"
            name=$(choose)
            [ -n "$name" ] || die "${where%/}/SHA256SUMS names no package for this host"
            where=${where%/}/$name
            ;;
    esac
    name=${where##*/}
    file=$work/$name
    if [ -z "$hash" ] && [ ! -s "$work/SHA256SUMS" ]; then
        case $where in */*) beside=${where%/*}/SHA256SUMS ;; *) beside=SHA256SUMS ;; esac
        case $where in
            http*) ;;
            *) [ -f "$beside" ] || die "there is no $beside to check $name with: --sha256 HASH" ;;
        esac
        fetch "$beside" "$work/SHA256SUMS"
    fi
    wanted=$hash
    [ -n "$wanted" ] || wanted=$(awk -v name="$name" '$2 == name { print $1 }' "$work/SHA256SUMS")
    [ -n "$wanted" ] || die "SHA256SUMS does not name $name"
    fetch "$where" "$file"
    found=$(sha256sum "$file" | cut -d ' ' -f 1)
    [ "$found" = "$wanted" ] || die "$name is not what was expected: its SHA-256 is $found, not $wanted"
}

apt() { DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" >>"$work/apt.log" 2>&1; }

# Twice, because a fresh system has no package lists.
apt_install() {
    apt install --no-install-recommends "$@" && return
    apt update && apt install --no-install-recommends "$@"
}
last_error() { grep -E '^(E:|dpkg:)' "$work/apt.log" | tail -n 1; }

install_deb() {
    has apt-get || die "$name needs apt-get; the release's .tar.gz does not"
    [ ! -e "$list" ] || die "kvmserver is installed in $prefix: install.sh --uninstall first"
    version=$(dpkg-deb -f "$file" Version 2>/dev/null) || die "$name is not a Debian package"
    [ "$(dpkg-deb -f "$file" Package)" = kvmserver ] || die "$name is not the package kvmserver"
    if package_installed && [ "$(dpkg-query -W -f '${Version}' kvmserver)" = "$version" ]; then
        say "kvmserver $version is installed already"
        return
    fi
    chmod 755 "$work" # apt's own user reads the file
    apt_install --allow-downgrades "$file" || die "apt-get cannot install $name: $(last_error)"
    say "installed the package kvmserver $version"
}

make_user() {
    getent group kvm >/dev/null || groupadd --system kvm || die "the group kvm cannot be made"
    getent passwd kvmserver >/dev/null ||
        useradd --system --user-group --home-dir /var/lib/kvmserver --no-create-home \
            --shell /usr/sbin/nologin kvmserver ||
        die "the user kvmserver cannot be made"
    usermod -a -G kvm kvmserver || die "the user kvmserver cannot be put into group kvm"
}

# Makes it with its parents, and notes those that were not there.
make_folder() {
    if [ -d "$1" ]; then return; fi
    make_folder "$(dirname "$1")" && mkdir "$1" && echo "$1" >>"$work/folders"
}

same_files() { while read -r each; do cmp -s "$work/tree/$each" "$prefix/$each" || return 1; done <"$work/files"; }

put() {
    make_folder "$prefix/$(dirname "$1")" && cp -p "$work/tree/$1" "$prefix/$1.new" && mv -f "$prefix/$1.new" "$prefix/$1"
}

install_archive() {
    ! package_installed || die "the package kvmserver is installed: install.sh --uninstall first"
    tar -tzf "$file" >"$work/names" 2>/dev/null || die "$name is not a .tar.gz"
    ! grep -qE '(^|/)\.\.(/|$)|^/' "$work/names" || die "$name has paths that lead out of it"
    mkdir "$work/tree"
    tar -C "$work/tree" --strip-components 1 --no-same-owner -xzf "$file" || die "$name cannot be unpacked"
    [ -x "$work/tree/bin/kvmserver" ] || die "$name does not hold kvmserver"
    "$work/tree/bin/kvmserver" version >"$work/version" 2>&1 ||
        die "the program of $name does not run here: $(head -n 1 "$work/version")"
    (cd "$work/tree" && find . -type f | sed 's|^\./||' | sort) >"$work/files"
    if ! ldconfig -p 2>/dev/null | grep -q 'libcurl\(-gnutls\)\?\.so\.4'; then
        if has apt-get && apt_install libcurl4 ca-certificates; then
            say "installed libcurl4, for commands that talk to a daemon elsewhere"
        else
            say "libcurl is not installed: commands with --remote need it"
        fi
    fi
    if [ -e "$list" ] && cmp -s "$work/files" "$list" && same_files; then
        say "$(cat "$work/version") is installed already"
        make_user
        return
    fi
    # What an older release brought and this one does not. The new list is written first, so that --uninstall knows all.
    make_folder "$own"
    if [ -e "$list" ]; then cp "$list" "$work/before"; else : >"$work/before"; fi
    sort -u "$work/before" "$work/files" >"$list" || die "$list cannot be written"
    while read -r each; do put "$each" || die "$prefix/$each cannot be written"; done <"$work/files"
    if [ -s "$work/folders" ]; then cat "$work/folders" >>"$folders"; fi
    comm -23 "$work/before" "$work/files" | while read -r each; do rm -f "$prefix/$each"; done
    cp "$work/files" "$list"
    make_user
    if systemd_runs; then
        systemctl daemon-reload
        systemctl try-restart kvmserver.service || say "the service did not start again: systemctl status kvmserver"
    fi
    say "installed $(cat "$work/version") in $prefix"
}

uninstall() {
    [ "$(id -u)" = 0 ] || die "run it as root: sudo sh install.sh --uninstall"
    removed=''
    if package_installed; then
        apt remove kvmserver || die "apt-get cannot remove kvmserver: $(last_error)"
        removed=1
    fi
    if [ -e "$list" ]; then
        if systemd_runs; then systemctl disable --now --quiet kvmserver.service || true; fi
        rm -f /etc/systemd/system/multi-user.target.wants/kvmserver.service
        while read -r each; do rm -f "${prefix:?}/$each"; done <"$list"
        if [ -e "$folders" ]; then sort -r "$folders" >"$work/folders"; fi
        rm -f "$list" "$folders"
        # The deepest first; what others have put something into stays.
        if [ -e "$work/folders" ]; then
            while read -r each; do rmdir "$each" 2>/dev/null || true; done <"$work/folders"
        fi
        if systemd_runs; then systemctl daemon-reload; fi
        removed=1
    fi
    if [ -z "$removed" ]; then
        say "kvmserver is not installed"
    elif [ -d /var/lib/kvmserver ]; then
        say "removed kvmserver; functions in /var/lib/kvmserver are kept"
    else
        say "removed kvmserver"
    fi
}

usage() {
    echo "usage: install.sh [--sha256 HASH] [--without-kvm] FOLDER|FILE|ADDRESS, or install.sh --uninstall" >&2
    exit 2
}

main() {
    where='' hash='' without_kvm='' remove=''
    while [ $# -gt 0 ]; do
        case $1 in
            --sha256)
                [ $# -gt 1 ] || usage
                hash=$2
                shift
                echo "$hash" | grep -qxE '[0-9a-f]{64}' || die "--sha256: '$hash' is not 64 hexadecimal digits"
                ;;
            --without-kvm) without_kvm=1 ;;
            --uninstall) remove=1 ;;
            -*) usage ;;
            *)
                [ -z "$where" ] || usage
                where=$1
                ;;
        esac
        shift
    done
    umask 022
    work=$(mktemp -d) || die "no temporary folder"
    trap clean_up EXIT
    trap 'exit 1' HUP INT TERM
    if [ -n "$remove" ]; then
        [ -z "$where" ] || usage
        uninstall
        return
    fi
    [ -n "$where" ] || usage
    check_host
    get_file
    case $name in
        *.deb) install_deb ;;
        *) install_archive ;;
    esac
    say "next: kvmserver doctor; systemctl enable --now kvmserver"
}

main "$@"
