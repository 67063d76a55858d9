#!/usr/bin/env bash
# Runs a command in an emulated hardware KVM host: QEMU TCG emulates an AMD processor with SVM and
# nested paging, or Bochs an Intel one with VMX and EPT; a stock Debian kernel boots on it and offers
# /dev/kvm of the hardware kind.
# No KVM is needed on this machine. See scripts/hwhost/README.md.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
helpers=$here/hwhost
cache=${here%/*}/build/hwhost

# shellcheck source=scripts/hwhost/common.sh
source "$helpers/common.sh"
# shellcheck source=scripts/hwhost/cache.sh
source "$helpers/cache.sh"
# shellcheck source=scripts/hwhost/stage.sh
source "$helpers/stage.sh"
# shellcheck source=scripts/hwhost/boot.sh
source "$helpers/boot.sh"
# shellcheck source=scripts/hwhost/boot_intel.sh
source "$helpers/boot_intel.sh"

usage() {
  cat <<'USAGE'
usage: scripts/hwhost.sh [OPTIONS] -- COMMAND ARGS...
       scripts/hwhost.sh --prepare | --self-test

Runs COMMAND in an emulated machine with hardware virtualisation (AMD SVM or Intel VT-x) and exits with its
status; 124: time-out, 125: the emulated host could not be made or died. stdin is /dev/null.

  --vendor amd|intel          QEMU with SVM (default), or Bochs with VMX, which is some ten times slower
  --add HOSTPATH[:GUESTPATH]  copy a file or a folder into the machine (repeatable), but for folders
                              named CMakeFiles; the shared libraries of every ELF file in it come along
  --env NAME=VALUE            set a variable for COMMAND (repeatable; nothing is inherited)
  --cwd DIR                   where COMMAND starts (this folder; made when missing)
  --with-python               add /usr/bin/python3, its standard library and pytest
  --timeout SECONDS           for the command, without the boot (600)
  --boot-timeout SECONDS      for the boot (120; intel 600)
  --smp N                     processors (1); more take turns in one thread (amd)
  --memory MIB                memory; touched pages only cost anything here (4096; intel 1024, for
                              all files twice)
  --disk-free MIB             free space on the root disk; sparse here (2048; amd)
  --cpu MODEL                 QEMU processor (max,+svm,+npt) or Bochs' (corei7_haswell_4770)
  --keep                      keep the disk, the kernel's log and QEMU's messages
  -v, --verbose               sizes and times on stderr
  --prepare                   only fetch and make what is cached in build/hwhost
  --self-test                 check the host itself: KVM, exit status, streams, time-out
USAGE
}

timeout=600 boot_timeout='' smp='' memory='' disk_free='' cpu='' vendor=amd
verbose=0 keep=0 with_python=0 action=run cwd=$PWD
adds=() env_settings=() command=()

while (($#)); do
  case $1 in
    --timeout | --boot-timeout | --smp | --memory | --disk-free | --cpu | --cwd | --add | --env | --vendor)
      (($# > 1)) || usage_error "$1 needs a value"
      ;;&
    --timeout | --boot-timeout | --smp | --memory | --disk-free)
      [[ $2 =~ ^[1-9][0-9]*$ ]] || usage_error "$1 needs a whole number, not '$2'"
      name=${1#--}
      printf -v "${name//-/_}" %s "$2"
      shift
      ;;
    --cpu) cpu=$2; shift ;;
    --vendor)
      [[ $2 == amd || $2 == intel ]] || usage_error "--vendor is amd or intel, not '$2'"
      vendor=$2
      shift
      ;;
    --cwd) cwd=$(realpath -ms -- "$2"); shift ;;
    --add) adds+=("$2"); shift ;;
    --env)
      [[ $2 =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || usage_error "--env needs NAME=VALUE, not '$2'"
      env_settings+=("$2")
      shift
      ;;
    --with-python) with_python=1 ;;
    --keep) keep=1 ;;
    -v | --verbose) verbose=1 ;;
    --prepare) action=prepare ;;
    --self-test) action=self_test ;;
    -h | --help) usage; exit 0 ;;
    --) shift; command=("$@"); break ;;
    *) usage_error "unknown option '$1' (the command comes after --)" ;;
  esac
  shift
done

if [[ $vendor == intel ]]; then
  [[ -z $smp && -z $disk_free ]] || usage_error "--smp and --disk-free are not for --vendor intel"
  : "${boot_timeout:=600}" "${memory:=1024}" "${cpu:=corei7_haswell_4770}"
else
  : "${boot_timeout:=120}" "${smp:=1}" "${memory:=4096}" "${disk_free:=2048}" "${cpu:=max,+svm,+npt}"
fi

case $action in
  prepare) prepare_cache ;;
  self_test)
    prepare_cache
    exec "$helpers/self_test.sh" "$here/hwhost.sh" "$cache" "$vendor"
    ;;
  run)
    ((${#command[@]})) || usage_error "no command"
    prepare_cache
    make_run_folder
    stage_everything
    if [[ $vendor == intel ]]; then
      make_cd
      boot_and_run_intel
    else
      make_disk
      boot_and_run
    fi
    ;;
esac
