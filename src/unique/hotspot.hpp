// Finds classes, fields and objects of a HotSpot JVM in a machine's memory. JDK 9 to 25.
//
// libjvm.so exports a description of its own structures for debuggers (gHotSpotVMStructs): names, offsets and
// addresses. So nothing here depends on the release, except the packing of field lists, which the description leaves
// out.
#pragma once
#include <map>
#include <string>

#include "src/unique/memory_view.hpp"

namespace kvmserver::unique {

class HotSpot {
public:
    explicit HotSpot(const MemoryView& memory);
    // Whether there is a JVM and its structures could be read.
    bool present() const { return present_; }

    // Address of a class, whichever loader has loaded it; 0 when none is loaded. Only classes of the JDK that may hold
    // generators are known.
    tinykvm::GuestVirt klass(std::string_view name) const;
    // Address of a static field; nullopt when there is no such class, field, or type descriptor.
    std::optional<tinykvm::GuestVirt> static_field(std::string_view klass, std::string_view name,
                                                   std::string_view type) const;
    // Address of an object's field; nullopt likewise.
    std::optional<tinykvm::GuestVirt> field(tinykvm::GuestVirt object, std::string_view klass, std::string_view name,
                                            std::string_view type) const;
    // The object to which a reference field points, if it is exactly of that class.
    std::optional<tinykvm::GuestVirt> object_in(std::optional<tinykvm::GuestVirt> field, std::string_view klass) const;
    // The java.lang.Thread objects of all threads.
    std::vector<tinykvm::GuestVirt> threads() const;

private:
    bool read_description();
    void read_classes();
    std::uint64_t word(std::uint64_t at) const;
    std::uint64_t offset(const char* field) const; // `field`: "Klass::_name"
    std::optional<std::uint64_t> variable(std::initializer_list<const char*> names) const;
    std::string_view symbol(std::uint64_t at) const;
    std::optional<std::uint32_t> field_offset(std::uint64_t klass, std::string_view name, std::string_view type) const;
    std::optional<std::uint32_t> packed_field(std::uint64_t klass, std::string_view name, std::string_view type) const;
    std::string_view pool_symbol(std::uint64_t klass, std::uint32_t index) const;
    bool has_class(std::uint64_t object, std::uint64_t klass, bool or_derived) const;

    const MemoryView* memory_;
    bool present_ = false;
    std::map<std::string, std::uint64_t, std::less<>> offsets_, variables_, sizes_;
    std::map<std::string, std::uint64_t, std::less<>> classes_; // only those that may hold generators
};

} // namespace kvmserver::unique
