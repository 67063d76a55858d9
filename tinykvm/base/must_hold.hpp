// For what must hold whatever a guest does: looked at in every build, unlike assert. Where it does not hold a bug of
// ours was found by a guest, and the process ends before more can come of it.
#pragma once

namespace tinykvm {

// One line to stderr that names the place, then abort().
[[noreturn]] void broken_invariant(const char* file, int line, const char* function);

// The place is the caller's. (Clang 14 has these, and no std::source_location.)
inline void must_hold(bool holds, const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                      const char* function = __builtin_FUNCTION()) {
    if (!holds) [[unlikely]]
        broken_invariant(file, line, function);
}

} // namespace tinykvm
