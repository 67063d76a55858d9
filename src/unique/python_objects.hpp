// Finds objects of CPython in a machine's memory by the names of their types. Python 3.8 to 3.14, with the global
// interpreter lock.
#pragma once
#include <string_view>
#include <vector>

#include "src/unique/memory_view.hpp"

namespace kvmserver::unique {

class PythonObjects {
public:
    explicit PythonObjects(const MemoryView& memory) : memory_(&memory), metatype_(find_metatype()) {}

    // Whether there is a Python interpreter.
    bool present() const { return metatype_.value != 0; }

    struct Found {
        tinykvm::GuestVirt object, type;
        std::size_t name; // index in `wanted`
    };
    // An object matches if its type, or a base of it, has this name and its type's size is within the bounds.
    struct Wanted {
        std::string_view type;
        std::uint64_t min_bytes, max_bytes; // size of the type's objects, in bytes
    };
    static constexpr std::size_t kMax = 1 << 16; // limit on the results of find(), however a program fills its memory
    // All objects that match an entry of `wanted`. One pass over memory for all entries.
    std::vector<Found> find(std::span<const Wanted> wanted);
    // The types that the last find() found for this entry of `wanted`, whether or not they have objects.
    const std::vector<tinykvm::GuestVirt>& types(std::size_t name) const { return types_[name]; }

    // Whether there is a live object. Exact for all types except those of metaclasses, which are not known.
    bool is_object(tinykvm::GuestVirt at) const;
    // Name of the object's type; "" when there is no object.
    std::string_view type_of(tinykvm::GuestVirt object) const;
    std::uint64_t size_of_type(tinykvm::GuestVirt type) const;

private:
    tinykvm::GuestVirt find_metatype() const;
    std::string_view type_name(tinykvm::GuestVirt type) const;
    void find_types(std::span<const Wanted> wanted);
    const MemoryView* memory_;
    tinykvm::GuestVirt metatype_; // PyType_Type; 0 if there is none
    std::vector<std::vector<tinykvm::GuestVirt>> types_;
};

} // namespace kvmserver::unique
