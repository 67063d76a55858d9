// Objects of CPython in a machine's memory, by the names of their types. Python 3.8 to 3.14, with the global lock.
#pragma once
#include <string_view>
#include <vector>

#include "src/unique/memory_view.hpp"

namespace kvmserver::unique {

class PythonObjects {
public:
    explicit PythonObjects(const MemoryView& memory) : memory_(&memory), metatype_(find_metatype()) {}

    // Whether there is an interpreter at all.
    bool present() const { return metatype_.value != 0; }

    struct Found {
        tinykvm::GuestVirt object, type;
        std::size_t name; // which of the names
    };
    // All objects whose type, or its base, has one of the names and the size of `least` bytes. One pass over memory for
    // all.
    struct Wanted {
        std::string_view type;
        std::uint64_t least, most; // bytes of the type's objects
    };
    static constexpr std::size_t kMax = 1 << 16; // that find() gives, however a program fills its memory
    std::vector<Found> find(std::span<const Wanted> wanted);
    // The types of that name which the last find() met, used or not.
    const std::vector<tinykvm::GuestVirt>& types(std::size_t name) const { return types_[name]; }

    // Whether there is an object, and alive. Exact for all types but those of metaclasses, which are not known.
    bool is_object(tinykvm::GuestVirt at) const;
    // "" when there is no object.
    std::string_view type_of(tinykvm::GuestVirt object) const;
    std::uint64_t size_of_type(tinykvm::GuestVirt type) const;

private:
    tinykvm::GuestVirt find_metatype() const;
    std::string_view type_name(tinykvm::GuestVirt type) const;
    void find_types(std::span<const Wanted> wanted);
    const MemoryView* memory_;
    tinykvm::GuestVirt metatype_; // PyType_Type; 0 when there is none
    std::vector<std::vector<tinykvm::GuestVirt>> types_;
};

} // namespace kvmserver::unique
