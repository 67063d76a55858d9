// The kernel's table of this process's descriptors.
#pragma once

namespace tinykvm {

// Makes it large enough for the numbers below `count`, as far as RLIMIT_NOFILE allows. Call it before there are
// threads: with them, the call that opens the first descriptor beyond the table waits until all CPUs have passed
// through the scheduler (fs/file.c of Linux, expand_fdtable: synchronize_rcu), which took 7 to 14 ms of a start. A
// table begins with 64 entries, and fork(2) does not copy room that is unused.
void reserve_descriptors(int count);

} // namespace tinykvm
