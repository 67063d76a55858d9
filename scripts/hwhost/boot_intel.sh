# shellcheck shell=bash disable=SC2154,SC2034 # shares variables with hwhost.sh
# The emulated Intel host: Bochs with VMX and EPT. Its kernel has no driver for any disk of Bochs', so all is in the initramfs,
# on a CD with a boot loader. Sourced by hwhost.sh; bochs.py runs the emulator.

make_cd() {
  local started cd=$run/cd
  started=$(now_ms)
  mkdir "$cd"
  cp "$cache/kernel" "$cd/kernel"
  mkdir "$stage/modules"
  cp "$cache"/modules/{irqbypass,kvm,kvm-intel}.ko "$stage/modules/"
  cp "$cache/relay" "$stage/.hwhost/relay"
  install -m 755 "$helpers/initramfs_init_intel" "$stage/init"
  (cd "$stage" && find . -print0 | cpio -0 -o -H newc -R 0:0 --quiet) >"$cd/initramfs" || die "cpio failed"
  rm -rf "$stage"
  local size
  size=$(($(stat -c %s "$cd/initramfs") >> 20))
  ((size * 5 / 2 + 128 < memory)) || die "the files take $size MiB, too much for --memory $memory"
  cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$cd/"
  cat >"$cd/isolinux.cfg" <<'CFG'
DEFAULT linux
LABEL linux
KERNEL /kernel
APPEND initrd=/initramfs console=ttyS0 nokaslr mitigations=off tsc=reliable no_timer_check nosmp panic=0 oops=panic quiet loglevel=5
CFG
  xorriso -as mkisofs -quiet -o "$run/cd.iso" -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table "$cd" \
    >"$run/xorriso.log" 2>&1 || die "xorriso failed: $(tail -n 3 "$run/xorriso.log")"
  rm -rf "$cd"
  tell "CD of $size MiB in $(seconds_since "$started") s"
}

boot_and_run_intel() {
  local share=/usr/share/bochs vga=/usr/share/vgabios/vgabios.bin status=0
  cat >"$run/bochsrc" <<RC
megs: $memory
cpu: model=$cpu, count=1, ips=100000000, reset_on_triple_fault=0
romimage: file=$share/BIOS-bochs-latest
vgaromimage: file=$vga
ata0-master: type=cdrom, path=$run/cd.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=console
com2: enabled=1, mode=file, dev=frames
display_library: term
sound: waveoutdrv=dummy
clock: sync=none
log: bochs.log
panic: action=fatal
error: action=ignore
info: action=ignore
RC
  echo c >"$run/debugger.rc"
  # Neither must outlive this script, however it ends.
  setpriv --pdeathsig TERM /usr/bin/python3 "$helpers/bochs.py" "$run" "$timeout" "$boot_timeout" "$verbose" &
  wait $! || status=$?
  report_kernel
  exit "$status"
}
