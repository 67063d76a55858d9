# shellcheck shell=bash disable=SC2154,SC2034 # shares variables with hwhost.sh
# Messages and the run folder. Sourced by hwhost.sh.

readonly status_timeout=124 status_no_host=125

say() { printf 'hwhost: %s\n' "$*" >&2; }

tell() { ((verbose == 0)) || say "$@"; }

die() {
  say "$@"
  exit "$status_no_host"
}

usage_error() {
  say "$@"
  say "see --help"
  exit "$status_no_host"
}

# A word that any POSIX shell reads back unchanged.
quoted() { printf "'%s'" "${1//\'/\'\\\'\'}"; }

# Milliseconds since the epoch.
now_ms() { printf '%s' $((${EPOCHREALTIME/[.,]/} / 1000)); }

seconds_since() {
  local ms=$(($(now_ms) - $1))
  printf '%d.%02d' $((ms / 1000)) $((ms % 1000 / 10))
}

# $run holds everything of this run and goes away with it; its name says whose it is.
make_run_folder() {
  remove_orphans
  run=$(mktemp -d "$cache/run.$$.XXXXXX")
  stage=$run/root
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
}

# Folders of runs that were killed.
remove_orphans() {
  local folder owner
  for folder in "$cache"/run.*; do
    owner=${folder##*/run.}
    owner=${owner%%.*}
    [[ $owner =~ ^[0-9]+$ && ! -e /proc/$owner ]] && rm -rf "$folder"
  done
  return 0
}

clean_up() {
  if [[ ${qemu_pid-} ]]; then
    kill -KILL "$qemu_pid" ${out_pid:+"$out_pid"} ${err_pid:+"$err_pid"} 2>/dev/null || true
    wait "$qemu_pid" ${out_pid:+"$out_pid"} ${err_pid:+"$err_pid"} 2>/dev/null || true
  fi
  if ((keep)); then
    rm -rf "$stage"
    mv "$run" "$cache/kept.${run##*.}"
    say "kept $cache/kept.${run##*.}"
  else
    rm -rf "$run"
  fi
}
