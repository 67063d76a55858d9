// Checks invariants that must hold whatever a guest does; unlike assert, in every build. If one does not hold, a guest
// has found a bug in our code, and the process ends before it can be exploited.
#pragma once

namespace tinykvm {

// One line to stderr that names the place, then abort().
[[noreturn]] void broken_invariant(const char* file, int line, const char* function);

// Reports the place of the caller. (Clang 14 has these builtins, but no std::source_location.)
inline void must_hold(bool holds, const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                      const char* function = __builtin_FUNCTION()) {
    if (!holds) [[unlikely]]
        broken_invariant(file, line, function);
}

} // namespace tinykvm
