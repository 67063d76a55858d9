#include "src/unique/python_objects.hpp"

#include <algorithm>
#include <bitset>

namespace kvmserver::unique {

using tinykvm::GuestVirt;

namespace {

// Include/cpython/object.h: the same since 3.8.
struct Object {
    std::uint64_t references;
    std::uint64_t type;
};
constexpr std::uint64_t kTypeName = 24, kTypeSize = 32, kTypeItem = 40, kTypeBase = 256;

// Whether this is the reference count of a live object. Freed memory holds a pointer there.
bool alive(std::uint64_t references) {
    const auto count = static_cast<std::uint32_t>(references);
    return count != 0 && count < 1u << 30 && references >> 48 == 0 &&
           (references >> 32 == 0 || references >> 32 == 0xffff);
}

// Or immortal, as are small numbers and the empty tuple since 3.12.
bool alive_or_immortal(std::uint64_t references) { return alive(references) || (references & 0xffffffff) >= 1u << 30; }

} // namespace

GuestVirt PythonObjects::find_metatype() const {
    // The type of types is its own type. It lies in the data of libpython or of the program.
    for (const Written& run : memory_->written()) {
        const Area* area = memory_->area_at(run.begin);
        const auto words = run.words();
        for (std::size_t i = 1; area && !area->name.empty() && i < words.size(); ++i) {
            const GuestVirt at = run.begin + (i - 1) * sizeof(std::uint64_t);
            if (words[i] == at.value && type_name(at) == "type")
                return at;
        }
    }
    return GuestVirt(0);
}

std::string_view PythonObjects::type_name(GuestVirt type) const {
    const auto name = memory_->value<std::uint64_t>(type + kTypeName);
    return name ? memory_->text(GuestVirt(*name), 64) : std::string_view{};
}

bool PythonObjects::is_object(GuestVirt at) const {
    const auto head = memory_->value<Object>(at);
    if (!head || !alive_or_immortal(head->references))
        return false;
    const auto type = memory_->value<Object>(GuestVirt(head->type));
    return type && (type->type == metatype_.value || !type_name(GuestVirt(head->type)).empty());
}

std::string_view PythonObjects::type_of(GuestVirt object) const {
    const auto head = memory_->value<Object>(object);
    return head && alive_or_immortal(head->references) ? type_name(GuestVirt(head->type)) : std::string_view{};
}

std::uint64_t PythonObjects::size_of_type(GuestVirt type) const {
    return memory_->value<std::uint64_t>(type + kTypeSize).value_or(0);
}

void PythonObjects::find_types(std::span<const Wanted> wanted) {
    constexpr std::size_t kMaxTypes = 16;
    types_.assign(wanted.size(), {});
    const auto look = [&](GuestVirt type) {
        const auto items = memory_->value<std::uint64_t>(type + kTypeItem);
        const std::uint64_t bytes = size_of_type(type);
        GuestVirt named = type;
        for (int depth = 0; depth < 4 && items == 0u; ++depth) {
            const std::string_view name = type_name(named);
            for (std::size_t i = 0; i < wanted.size(); ++i)
                if (wanted[i].type == name && bytes >= wanted[i].min_bytes && bytes <= wanted[i].max_bytes &&
                    types_[i].size() < kMaxTypes)
                    return types_[i].push_back(type);
            named = GuestVirt(memory_->value<std::uint64_t>(named + kTypeBase).value_or(0));
        }
    };
    for (const Written& run : memory_->written()) {
        const auto words = run.words();
        for (std::size_t i = 1; i < words.size(); ++i)
            if (words[i] == metatype_.value && static_cast<std::uint32_t>(words[i - 1]) != 0)
                look(run.begin + (i - 1) * sizeof(std::uint64_t));
    }
}

std::vector<PythonObjects::Found> PythonObjects::find(std::span<const Wanted> wanted) {
    std::vector<Found> found;
    find_types(wanted);
    constexpr std::size_t kBits = 1 << 14;
    std::bitset<kBits> perhaps; // quick test: most words are not a wanted type
    const auto bit = [](std::uint64_t type) { return type >> 4 & (kBits - 1); };
    for (const auto& types : types_)
        for (const GuestVirt type : types)
            perhaps.set(bit(type.value));
    if (perhaps.none())
        return found;
    const auto look = [&](GuestVirt at, std::uint64_t type) {
        for (std::size_t i = 0; i < types_.size(); ++i)
            if (std::find(types_[i].begin(), types_[i].end(), GuestVirt(type)) != types_[i].end() &&
                memory_->writable(at, size_of_type(GuestVirt(type))))
                found.push_back({at, GuestVirt(type), i});
    };
    for (const Written& run : memory_->written()) {
        const auto words = run.words();
        for (std::size_t i = 1; i < words.size() && found.size() < kMax; ++i)
            if (perhaps[bit(words[i])] && alive(words[i - 1]))
                look(run.begin + (i - 1) * sizeof(std::uint64_t), words[i]);
    }
    return found;
}

} // namespace kvmserver::unique
