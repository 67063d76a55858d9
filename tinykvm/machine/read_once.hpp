// Reads a value that the guest can change.
#pragma once

namespace tinykvm {

// Fetches a field of guest memory exactly once. The compiler may repeat a plain read, with another result.
template <class T>
T once(const T& value) {
    return *static_cast<const volatile T*>(&value);
}

} // namespace tinykvm
