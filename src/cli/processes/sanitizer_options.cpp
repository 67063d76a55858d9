// Of a build with sanitizers (KVMSERVER_SANITIZE). Processes of functions have no variables of ours, so it is said
// here.

// Memory that nobody refers to is looked for by another thread with ptrace, which a jail ends the process for.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
extern "C" const char* __ubsan_default_options();
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }

// The first data race ends the process, so that who waits for it notices. Processes are forked while there are threads;
// names are for llvm-symbolizer-14 --obj=kvmserver ADDRESS, which no jail would let run.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "halt_on_error=1:die_after_fork=0:symbolize=0"; }
