# shellcheck shell=bash disable=SC2154,SC2034 # shares variables with hwhost.sh
# What is fetched or made once and kept in build/hwhost. Sourced by hwhost.sh.

# In the order in which they must be loaded. ext4 is built into the kernel.
readonly guest_modules=(irqbypass kvm kvm-amd virtio_ring virtio virtio_pci_legacy_dev
  virtio_pci_modern_dev virtio_pci virtio_blk virtio_console)
readonly intel_module=kvm-intel

# Bump when a change here must remake everything below.
readonly cache_version=3

as_root() {
  if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi
}

install_missing_packages() {
  local missing=()
  if [[ $vendor == amd ]]; then
    [[ $(type -P qemu-system-x86_64) ]] || missing+=(qemu-system-x86)
  else
    [[ $(type -P bochs) ]] || missing+=(bochs)
    compgen -G '/usr/lib/*/bochs/plugins/libbx_term_gui.so' >/dev/null || missing+=(bochs-term)
    [[ -e /usr/share/bochs/BIOS-bochs-latest ]] || missing+=(bochsbios) # another BIOS satisfies bochs' dependency
    [[ -e /usr/share/vgabios/vgabios.bin ]] || missing+=(vgabios)
    [[ -e /usr/lib/ISOLINUX/isolinux.bin ]] || missing+=(isolinux)
    [[ -e /usr/lib/syslinux/modules/bios/ldlinux.c32 ]] || missing+=(syslinux-common)
    [[ $(type -P xorriso) ]] || missing+=(xorriso)
  fi
  [[ -x $(busybox_path) ]] || missing+=(busybox-static)
  [[ $(type -P cpio) ]] || missing+=(cpio)
  [[ $(PATH=$PATH:/usr/sbin:/sbin type -P mke2fs) ]] || missing+=(e2fsprogs)
  [[ $(type -P xz) ]] || missing+=(xz-utils)
  ((${#missing[@]})) || return 0
  say "installing ${missing[*]}"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
  {
    as_root "${apt[@]}" install --no-install-recommends "${missing[@]}" ||
      { as_root "${apt[@]}" update && as_root "${apt[@]}" install --no-install-recommends "${missing[@]}"; }
  } >"$cache/apt.log" 2>&1 || die "cannot install ${missing[*]}: see $cache/apt.log"
}

# Only a static busybox will do; /bin/busybox may be the dynamic one.
busybox_path() {
  local path=/bin/busybox
  if [[ -x $path ]] && ! readelf -lW "$path" 2>/dev/null | grep -q INTERP; then
    printf %s "$path"
  fi
}

kernel_package() {
  apt-cache depends linux-image-cloud-amd64 2>/dev/null |
    sed -n 's/^ *Depends: \(linux-image-[0-9].*-cloud-amd64\)$/\1/p' | head -n 1
}

# Leaves $cache/kernel and $cache/modules/*.ko.
fetch_kernel() {
  [[ -e $cache/kernel ]] && return
  local work package
  work=$(mktemp -d "$cache/fetch.XXXXXX")
  package=$(kernel_package)
  if [[ -z $package ]]; then
    as_root apt-get -q update >"$cache/apt.log" 2>&1 || true
    package=$(kernel_package)
  fi
  [[ $package ]] || die "apt knows no linux-image-cloud-amd64 (is this Debian, are its lists there?)"
  say "fetching $package"
  if ! (cd "$work" && apt-get -q download "$package") >"$cache/apt.log" 2>&1; then
    as_root apt-get -q update >>"$cache/apt.log" 2>&1 || true
    (cd "$work" && apt-get -q download "$package") >>"$cache/apt.log" 2>&1 ||
      die "cannot download $package: see $cache/apt.log"
  fi
  dpkg-deb -x "$work"/*.deb "$work/tree"

  rm -rf "$cache/modules"
  mkdir "$cache/modules"
  local module found
  for module in "${guest_modules[@]}" "$intel_module"; do
    found=$(find "$work/tree" -name "$module.ko" -o -name "$module.ko.xz" | head -n 1)
    case $found in
      *.ko) cp "$found" "$cache/modules/" ;;
      *.ko.xz) xz -dc "$found" >"$cache/modules/$module.ko" ;;
      *) die "$package has no module $module" ;;
    esac
  done
  cp "$work"/tree/boot/vmlinuz-* "$work/kernel"
  chmod a+r "$work/kernel"
  mv "$work/kernel" "$cache/kernel"
  rm -rf "$work"
}

make_initramfs() {
  [[ $cache/initramfs -nt $helpers/initramfs_init && $cache/initramfs -nt $cache/kernel ]] && return
  local tree
  tree=$(mktemp -d "$cache/initramfs.XXXXXX")
  mkdir "$tree"/{bin,dev,modules,proc,root}
  cp "$(busybox_path)" "$tree/bin/busybox"
  local module
  for module in "${guest_modules[@]}"; do cp "$cache/modules/$module.ko" "$tree/modules/"; done
  printf '%s\n' "${guest_modules[@]}" >"$tree/modules/order"
  install -m 755 "$helpers/initramfs_init" "$tree/init"
  (cd "$tree" && find . -print0 | cpio -0 -o -H newc -R 0:0 --quiet) >"$tree.cpio"
  mv "$tree.cpio" "$cache/initramfs"
  rm -rf "$tree"
}

# The part of the root disk that every run has: folders, busybox and its applets.
make_base() {
  [[ -e $cache/base ]] && return
  local tree applet
  tree=$(mktemp -d "$cache/base.XXXXXX")
  chmod 755 "$tree"
  mkdir -p "$tree"/usr/{bin,sbin,lib,lib64,local/bin,local/lib,share} \
    "$tree"/{dev,etc,home,mnt,opt,proc,root,run,sys,tmp,var/tmp,.hwhost}
  local folder
  for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$tree/$folder"; done
  ln -s /run "$tree/var/run"
  chmod 1777 "$tree/tmp" "$tree/var/tmp"
  cp "$(busybox_path)" "$tree/usr/bin/busybox"
  while read -r applet; do
    [[ $applet == */busybox || -e $tree/$applet ]] || ln -s /usr/bin/busybox "$tree/$applet"
  done < <("$tree/usr/bin/busybox" --list-full)
  mv "$tree" "$cache/base"
}

# The program that carries the streams of the Intel host out.
make_relay() {
  [[ $cache/relay -nt $helpers/relay.c ]] && return
  cc -O2 -Wall -Wextra -D_GNU_SOURCE -static -o "$cache/relay.new" "$helpers/relay.c" || die "cannot compile $helpers/relay.c"
  mv "$cache/relay.new" "$cache/relay"
}

# The host's own python3 with its standard library, its libraries, and pytest where installed.
make_python() {
  local python=/usr/bin/python3
  [[ -x $python ]] || die "--with-python: this machine has no $python"
  local real stdlib
  real=$(realpath "$python")
  python_tree=$cache/${real##*/}
  [[ $python_tree -nt $real ]] && return
  stdlib=$("$python" -I -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
  local tree module
  tree=$(mktemp -d "$cache/python.XXXXXX")
  chmod 755 "$tree"
  mkdir -p "$tree/usr/bin" "$tree$stdlib"
  ln -s usr/lib "$tree/lib"
  ln -s usr/lib64 "$tree/lib64"
  mkdir "$tree"/usr/{lib,lib64} 2>/dev/null || true
  cp "$real" "$tree$real"
  ln -sf "${real##*/}" "$tree$python"
  tar -C "$stdlib" -c --exclude='./config-*' --exclude=./test --exclude=./idlelib --exclude=./lib2to3 \
    --exclude=./tkinter --exclude=./ensurepip . | tar -C "$tree$stdlib" -x
  mkdir -p "$tree/usr/lib/python3/dist-packages"
  for module in pytest _pytest pluggy iniconfig packaging attr attrs py.py; do
    cp -rL --preserve=timestamps "/usr/lib/python3/dist-packages/$module" "$tree/usr/lib/python3/dist-packages/" 2>/dev/null || true
  done
  local stage=$tree
  add_dependencies_of_tree "$tree"
  rm -rf "$python_tree"
  mv "$tree" "$python_tree"
  touch "$python_tree"
}

prepare_cache() {
  mkdir -p "$cache"
  printf '*\n' >"$cache/.gitignore"
  # One run at a time makes the cache; the others wait and find it made.
  exec {lock}>"$cache/lock"
  flock -w 600 "$lock" || die "another run holds $cache/lock"
  if [[ $(cat "$cache/version" 2>/dev/null) != "$cache_version" ]]; then
    rm -rf "$cache"/{kernel,modules,initramfs,base,python3*}
  fi
  install_missing_packages
  fetch_kernel
  make_initramfs
  make_base
  [[ $vendor == amd ]] || make_relay
  ((with_python == 0)) || make_python
  printf '%s\n' "$cache_version" >"$cache/version"
  exec {lock}>&-
}
