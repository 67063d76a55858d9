# shellcheck shell=bash disable=SC2154,SC2034 # shares variables with hwhost.sh
# Boots the emulated host and carries the command's streams and status out. Sourced by hwhost.sh.
#
# Three virtio serial ports, so that no byte is changed on its way: 1 stdout, 2 stderr, 3 status.
# The guest writes "up" to port 3 just before the command and "exit N" after it. Ports 1 and 2 are
# files here, followed by tail: QEMU never waits for a slow reader, so nothing is still inside it
# when "exit" arrives. The kernel's own messages go to the serial line, a file too.

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
  IFS= read -r -t "$1" -u "$status_port" line || result=$?
  ((result == 0)) && return 0
  ((result > 128)) && return 2
  return 1
}

start_machine() {
  # QEMU 7.2's threads do not survive two processors in SVM guests at once: one KVM_RUN in a few
  # hundred thousand never returns. Processors that take turns in one thread do not have that.
  local thread=multi
  ((smp == 1)) || thread=single
  touch "$run"/{console,out,err}
  exec {status_port}< <(
    exec 3>&1 >"$run/qemu.log" 2>&1 </dev/null
    # QEMU must not outlive this script, however it ends.
    exec setpriv --pdeathsig KILL qemu-system-x86_64 -name hwhost -nodefaults -no-user-config -no-reboot -display none \
      -machine q35 -accel "tcg,thread=$thread" -cpu "$cpu" -smp "$smp" -m "$memory" \
      -kernel "$cache/kernel" -initrd "$cache/initramfs" \
      -append "console=ttyS0 quiet loglevel=5 tsc=reliable panic=-1 oops=panic mitigations=off" \
      -chardev "file,id=console,path=$run/console" -serial chardev:console \
      -drive "file=$disk,format=raw,if=virtio,cache=unsafe" \
      -chardev "file,id=out,path=$run/out,append=on" \
      -chardev "file,id=err,path=$run/err,append=on" \
      -add-fd fd=3,set=1 -chardev file,id=status,path=/dev/fdset/1,append=on \
      -device virtio-serial-pci,max_ports=4 \
      -device virtserialport,nr=1,chardev=out \
      -device virtserialport,nr=2,chardev=err \
      -device virtserialport,nr=3,chardev=status
  )
  qemu_pid=$! out_pid='' err_pid=''
  tail -c +1 -f -s 0.05 --pid="$qemu_pid" "$run/out" {status_port}<&- &
  out_pid=$!
  tail -c +1 -f -s 0.05 --pid="$qemu_pid" "$run/err" {status_port}<&- >&2 &
  err_pid=$!
}

# SIGTERM lets QEMU's main loop finish its round, so what was sent before "exit" is in the files.
stop_machine() {
  kill -TERM "$qemu_pid" 2>/dev/null || true
  local tries
  for ((tries = 0; tries < 250; tries++)); do
    kill -0 "$qemu_pid" 2>/dev/null || break
    sleep 0.02
  done
  kill -KILL "$qemu_pid" 2>/dev/null || true
  wait "$qemu_pid" "$out_pid" "$err_pid" 2>/dev/null || true
  qemu_pid=
}

boot_and_run() {
  local started result=0 line
  started=$(now_ms)
  start_machine

  read_status "$boot_timeout" || result=$?
  ((result != 1)) || { stop_machine; host_died "the emulated host did not start"; }
  ((result != 2)) || { stop_machine; host_died "the emulated host did not boot in $boot_timeout s"; }
  [[ $line == up ]] || { stop_machine; host_died "the emulated host said '$line'"; }
  tell "booted in $(seconds_since "$started") s"

  started=$(now_ms)
  read_status "$timeout" || result=$?
  stop_machine
  report_kernel
  ((result != 1)) || host_died "the emulated host died while the command ran"
  if ((result == 2)); then
    say "timed out after $timeout s"
    exit "$status_timeout"
  fi
  tell "command took $(seconds_since "$started") s, status ${line#exit }"
  [[ $line =~ ^exit\ [0-9]+$ ]] || die "the emulated host said '$line'"
  exit "${line#exit }"
}
