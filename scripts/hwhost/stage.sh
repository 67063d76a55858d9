# shellcheck shell=bash disable=SC2154,SC2034 # shares variables with hwhost.sh
# Gathers the root folder of one run and makes the disk of it. Sourced by hwhost.sh.

# Folders that are mounted over in the guest: nothing can be added there.
readonly mounted_over='/dev|/proc|/sys|/run'

# stage_copy HOSTPATH GUESTPATH: files are copied through links, folders as they are but for CMakeFiles.
stage_copy() {
  local host=$1 guest=$2
  [[ $guest =~ ^($mounted_over)(/|$) || $guest == / ]] && die "cannot add anything at $guest"
  local parent=$stage${guest%/*}
  # An absolute link in an added tree must not lead a later copy out of the stage.
  [[ $(realpath -m -- "$parent")/ == "$stage/"* ]] || die "$guest leads through a link out of the tree"
  mkdir -p -- "$parent"
  if [[ -d $host ]]; then
    cp -aHT --reflink=auto --remove-destination -- "$host" "$stage$guest" || die "cannot copy $host"
    # Object files are of no use there, and an emulated Intel processor takes a second for ten MiB.
    find "$stage$guest" -type d -name CMakeFiles -prune -exec rm -rf {} +
  else
    cp -LT --preserve=mode,timestamps --reflink=auto --remove-destination -- "$host" "$stage$guest" ||
      die "cannot copy $host"
  fi
}

staged() { [[ -e $stage$1 || -L $stage$1 ]]; }

# The libraries and the dynamic linker of one ELF file, one path a line. Asks the linker to list
# them instead of running ldd, which may run the program.
elf_dependencies() {
  local linker
  linker=$(readelf -lW "$1" 2>/dev/null | sed -n 's/.*\[Requesting program interpreter: \(.*\)\]/\1/p')
  if [[ -z $linker ]]; then
    # A shared object, or a static program (which has no NEEDED entry).
    readelf -dW "$1" 2>/dev/null | grep -q '(NEEDED)' || return 0
    linker=/lib64/ld-linux-x86-64.so.2
  fi
  [[ -x $linker ]] || return 0
  printf '%s\n' "$linker"
  "$linker" --list "$1" 2>/dev/null | sed -n -e 's/^\t.* => \(\/.*\) (0x[0-9a-f]*)$/\1/p' \
    -e 's/^\t\(\/.*\) (0x[0-9a-f]*)$/\1/p' -e 's/^\t\(.*\) => not found$/missing:\1/p'
}

declare -A seen_elf=()

add_dependencies() {
  local path
  while read -r path; do
    [[ -z ${seen_elf[$path]-} ]] || continue
    seen_elf[$path]=1
    if [[ $path == missing:* ]]; then
      say "warning: ${1#"$stage"} needs ${path#missing:}, which this machine does not have"
    elif ! staged "$path"; then
      stage_copy "$path" "$path"
    fi
  done < <(elf_dependencies "$1")
}

add_dependencies_of_tree() {
  local file
  while IFS= read -r -d '' file; do
    add_dependencies "$file"
  done < <(find "$1" -type f \( -perm /111 -o -name '*.so' -o -name '*.so.*' -o -name '*.node' \) \
    -exec grep -lZaP -m 1 '^\x7fELF' {} + 2>/dev/null)
}

# add_path HOSTPATH[:GUESTPATH]
add_path() {
  local host=${1%%:*} guest=
  [[ $1 == *:* ]] && guest=${1#*:}
  host=$(realpath -ms -- "$host")
  guest=$(realpath -ms -- "${guest:-$host}")
  [[ -e $host ]] || die "--add: there is no $host"
  [[ -r $host ]] || die "--add: cannot read $host"
  stage_copy "$host" "$guest"
  if [[ -d $host ]]; then
    add_dependencies_of_tree "$host"
  else
    add_dependencies "$host"
  fi
}

write_settings() {
  printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' 'daemon:x:1:1::/:/bin/false' \
    'nobody:x:65534:65534:nobody:/nonexistent:/bin/false' >"$stage/etc/passwd"
  printf '%s\n' 'root:x:0:' 'daemon:x:1:' 'tty:x:5:' 'kvm:x:104:' 'nogroup:x:65534:' >"$stage/etc/group"
  printf '%s\n' '127.0.0.1 localhost hwhost' '::1 localhost' >"$stage/etc/hosts"
  printf '%s\n' 'passwd: files' 'group: files' 'hosts: files' 'services: files' >"$stage/etc/nsswitch.conf"
  echo hwhost >"$stage/etc/hostname"
  # Where libraries outside the linker's own folders are, such as /usr/local/lib.
  cp /etc/ld.so.cache "$stage/etc/" 2>/dev/null || true
}

# COMMAND as a script, so that no argument is ever split or expanded.
write_command() {
  local word setting
  {
    echo '#!/bin/sh'
    echo "mkdir -p $(quoted "$cwd") && cd $(quoted "$cwd") || exit 125" # /tmp is a fresh tmpfs there
    for setting in "${env_settings[@]}"; do
      echo "export ${setting%%=*}=$(quoted "${setting#*=}")"
    done
    printf exec
    for word in "${command[@]}"; do printf ' %s' "$(quoted "$word")"; done
    echo
  } >"$stage/.hwhost/command"
}

stage_everything() {
  local started path
  started=$(now_ms)
  cp -a "$cache/base" "$stage"
  ((with_python == 0)) || cp -a "$python_tree/." "$stage/"
  write_settings
  install -m 755 "$helpers/guest_init" "$stage/.hwhost/init"
  for path in "${adds[@]}"; do add_path "$path"; done
  if [[ ${command[0]} == */* ]]; then
    command[0]=$(realpath -ms -- "${command[0]}")
    if ! staged "${command[0]}" && [[ -f ${command[0]} ]]; then add_path "${command[0]}"; fi
  fi
  [[ $cwd =~ ^($mounted_over|/tmp)(/|$) ]] || mkdir -p -- "$stage$cwd"
  write_command
  tell "staged $(du -sm --apparent-size "$stage" | cut -f 1) MiB in $(seconds_since "$started") s"
}

make_disk() {
  local started content files
  started=$(now_ms)
  content=$(du -sm --apparent-size "$stage" | cut -f 1)
  files=$(find "$stage" | wc -l)
  disk=$run/disk
  truncate -s $((content + content / 8 + files / 200 + disk_free))M "$disk"
  PATH=$PATH:/usr/sbin:/sbin mke2fs -q -F -t ext4 -O ^has_journal,^metadata_csum -m 0 \
    -N $((files + files / 4 + 65536)) -E lazy_itable_init=1,nodiscard,root_owner=0:0 \
    -d "$stage" "$disk" 2>"$run/mke2fs.log" >&2 || die "mke2fs failed: $(tail -n 3 "$run/mke2fs.log")"
  rm -rf "$stage"
  tell "disk of $(du -m "$disk" | cut -f 1) MiB in $(seconds_since "$started") s"
}
