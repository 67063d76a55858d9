// Options of sanitizer builds (KVMSERVER_SANITIZE). They are compiled in, because function processes get none of our
// environment variables.

// Leak detection needs ptrace, for which a jail kills the process.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
extern "C" const char* __ubsan_default_options();
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }

// halt_on_error: the first data race ends the process, so that whoever waits for it notices. die_after_fork: processes
// are forked while there are threads. symbolize: no symbolizer may run in a jail; use llvm-symbolizer-14
// --obj=kvmserver ADDRESS.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "halt_on_error=1:die_after_fork=0:symbolize=0"; }
