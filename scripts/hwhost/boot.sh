# Boots the emulated host and carries the command's streams and status out. Sourced by hwhost.sh.
#
# Three virtio serial ports, so that no byte is changed on its way: 1 stdout, 2 stderr, 3 status.
# The guest writes "up" to port 3 just before the command and "exit N" after it. The kernel's own
# messages go to the serial line, which is a file.

# Says what the kernel complained of, so that a fault of the emulated host is not taken for ours.
report_kernel() {
  local complaints='Kernel panic|BUG:|Oops|WARNING:|soft lockup|rcu: INFO|Out of memory|segfault|Unable to handle'
  if grep -qaE "$complaints" "$run/console"; then
    say "the emulated host's kernel complained:"
    grep -aE -A 12 "$complaints" "$run/console" | tr -d '\r' | head -n 60 >&2
  fi
}

host_died() {
  say "$1"
  { tail -n 20 "$run/console"; tail -n 20 "$run/qemu.log"; } 2>/dev/null | tr -d '\r' >&2
  exit "$status_no_host"
}

# read_status SECONDS: sets $line; 0 a line, 1 the machine is gone, 2 too late.
read_status() {
  local result=0
  (($1 > 0)) || return 2
  IFS= read -r -t "$1" -u "$status_port" line || result=$?
  ((result == 0)) && return 0
  ((result > 128)) && return 2
  return 1
}

seconds_left() { printf %s $(((deadline - $(now_ms) + 999) / 1000)); }

start_machine() {
  exec {out}> >(exec cat)
  out_pid=$!
  exec {err}> >(exec {out}>&-; exec cat >&2)
  err_pid=$!
  touch "$run/console"
  exec {status_port}< <(
    exec 3>&1 >"$run/qemu.log" 2>&1 </dev/null
    exec qemu-system-x86_64 -name hwhost -nodefaults -no-user-config -no-reboot -display none \
      -machine q35,accel=tcg -cpu "$cpu" -smp "$smp" -m "$memory" \
      -kernel "$cache/kernel" -initrd "$cache/initramfs" \
      -append "console=ttyS0 quiet loglevel=5 panic=-1 oops=panic mitigations=off" \
      -chardev "file,id=console,path=$run/console" -serial chardev:console \
      -drive "file=$disk,format=raw,if=virtio,cache=unsafe" \
      -add-fd "fd=$out,set=1" -chardev file,id=out,path=/dev/fdset/1,append=on \
      -add-fd "fd=$err,set=2" -chardev file,id=err,path=/dev/fdset/2,append=on \
      -add-fd fd=3,set=3 -chardev file,id=status,path=/dev/fdset/3,append=on \
      -device virtio-serial-pci,max_ports=4 \
      -device virtserialport,nr=1,chardev=out \
      -device virtserialport,nr=2,chardev=err \
      -device virtserialport,nr=3,chardev=status
  )
  qemu_pid=$!
  exec {out}>&- {err}>&-
}

# Everything the command wrote has left QEMU when "exit" is read, so it can simply be ended.
stop_machine() {
  kill -KILL "$qemu_pid" 2>/dev/null || true
  wait "$out_pid" "$err_pid" "$qemu_pid" 2>/dev/null || true
  qemu_pid=
}

boot_and_run() {
  local started=$(now_ms) deadline boot_limit result=0 line
  deadline=$((started + timeout * 1000))
  boot_limit=$((boot_timeout < timeout ? boot_timeout : timeout))
  start_machine

  read_status "$boot_limit" || result=$?
  ((result != 1)) || { stop_machine; host_died "the emulated host did not start"; }
  ((result != 2)) || { stop_machine; host_died "the emulated host did not boot in $boot_limit s"; }
  [[ $line == up ]] || { stop_machine; host_died "the emulated host said '$line'"; }
  tell "booted in $(seconds_since "$started") s"

  local command_started=$(now_ms)
  read_status "$(seconds_left)" || result=$?
  stop_machine
  report_kernel
  ((result != 1)) || host_died "the emulated host died while the command ran"
  if ((result == 2)); then
    say "timed out after $timeout s"
    exit "$status_timeout"
  fi
  tell "command took $(seconds_since "$command_started") s, status ${line#exit }"
  [[ $line =~ ^exit\ [0-9]+$ ]] || die "the emulated host said '$line'"
  exit "${line#exit }"
}
