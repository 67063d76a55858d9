#include "src/unique/hotspot.hpp"

#include "src/unique/exported.hpp"

namespace kvmserver::unique {

using tinykvm::GuestVirt;

namespace {

constexpr std::uint64_t kMaxStructEntries = 16'384, kMaxClasses = 1 << 19, kMaxLoaders = 1 << 17, kMaxThreads = 1 << 16,
                        kMaxFields = 1 << 12;

// Packages whose classes may hold generators. For all other classes, not even the name is kept.
bool of_interest(std::string_view name) {
    return name.starts_with("java/util/") || name.starts_with("java/lang/") || name.starts_with("jdk/random/") ||
           name.starts_with("sun/security/provider/");
}

// src/hotspot/share/runtime/vmStructs.hpp, VMStructEntry and VMTypeEntry.
struct StructEntry {
    std::uint64_t type, field, type_string;
    std::uint32_t is_static, padding;
    std::uint64_t offset, address;
};
struct TypeEntry {
    std::uint64_t name, super;
    std::uint32_t kinds[3], padding;
    std::uint64_t bytes;
};
static_assert(sizeof(StructEntry) == 48 && sizeof(TypeEntry) == 40);

// src/hotspot/share/utilities/unsigned5.hpp: numbers encoded as 1 to 5 bytes, none of which is 0.
class Unsigned5 {
public:
    explicit Unsigned5(std::span<const std::byte> bytes) : bytes_(bytes) {}
    std::optional<std::uint32_t> next() {
        std::uint32_t sum = 0;
        for (unsigned i = 0; i < 5; ++i) {
            if (at_ == bytes_.size() || bytes_[at_] == std::byte{0})
                return std::nullopt;
            const auto byte = static_cast<std::uint32_t>(bytes_[at_++]);
            sum += (byte - 1) << (6 * i);
            if (byte < 192)
                break;
        }
        return sum;
    }

private:
    std::span<const std::byte> bytes_;
    std::size_t at_ = 0;
};

} // namespace

HotSpot::HotSpot(const MemoryView& memory) : memory_(&memory) {
    if (!read_description())
        return;
    read_classes();
    present_ = !classes_.empty();
}

std::uint64_t HotSpot::word(std::uint64_t at) const { return memory_->value<std::uint64_t>(GuestVirt(at)).value_or(0); }

std::uint64_t HotSpot::offset(const char* field) const {
    const auto found = offsets_.find(field);
    return found == offsets_.end() ? ~std::uint64_t{0} >> 1 : found->second; // an offset that leads out of all memory
}

std::optional<std::uint64_t> HotSpot::variable(std::initializer_list<const char*> names) const {
    for (const char* name : names)
        if (const auto found = variables_.find(name); found != variables_.end())
            return memory_->value<std::uint64_t>(GuestVirt(found->second));
    return std::nullopt;
}

bool HotSpot::read_description() {
    const Area* library = memory_->file_named("libjvm.so");
    const auto structs = library ? exported(*memory_, *library, "gHotSpotVMStructs") : std::nullopt;
    const auto types = library ? exported(*memory_, *library, "gHotSpotVMTypes") : std::nullopt;
    if (!structs || !types)
        return false;
    const std::uint64_t first = word(structs->at.value), first_type = word(types->at.value);
    for (std::uint64_t i = 0; i < kMaxStructEntries; ++i) {
        const auto entry = memory_->value<StructEntry>(GuestVirt(first + i * sizeof(StructEntry)));
        if (!entry || entry->type == 0)
            break;
        const std::string name = std::string(memory_->text(GuestVirt(entry->type))) +
                                 "::" + std::string(memory_->text(GuestVirt(entry->field)));
        (entry->is_static ? variables_ : offsets_)[name] = entry->is_static ? entry->address : entry->offset;
    }
    for (std::uint64_t i = 0; i < kMaxStructEntries; ++i) {
        const auto entry = memory_->value<TypeEntry>(GuestVirt(first_type + i * sizeof(TypeEntry)));
        if (!entry || entry->name == 0)
            break;
        sizes_[std::string(memory_->text(GuestVirt(entry->name)))] = entry->bytes;
    }
    return true;
}

std::string_view HotSpot::symbol(std::uint64_t at) const {
    const auto length = memory_->value<std::uint16_t>(GuestVirt(at + offset("Symbol::_length")));
    const auto body = memory_->bytes(GuestVirt(at + offset("Symbol::_body")), length.value_or(0));
    return {reinterpret_cast<const char*>(body.data()), body.size()};
}

void HotSpot::read_classes() {
    std::uint64_t loader = variable({"ClassLoaderDataGraph::_head"}).value_or(0), left = kMaxClasses;
    for (std::uint64_t i = 0; loader != 0 && i < kMaxLoaders; ++i) {
        for (std::uint64_t klass = word(loader + offset("ClassLoaderData::_klasses")); klass != 0 && left != 0;
             --left) {
            const std::string_view name = symbol(word(klass + offset("Klass::_name")));
            if (of_interest(name))
                classes_.emplace(name, klass);
            klass = word(klass + offset("Klass::_next_link"));
        }
        loader = word(loader + offset("ClassLoaderData::_next"));
    }
}

GuestVirt HotSpot::klass(std::string_view name) const {
    const auto found = classes_.find(name);
    return GuestVirt(found == classes_.end() ? 0 : found->second);
}

std::string_view HotSpot::pool_symbol(std::uint64_t klass, std::uint32_t index) const {
    const auto header = sizes_.find("ConstantPool");
    const std::uint64_t pool = word(klass + offset("InstanceKlass::_constants"));
    return header == sizes_.end() || pool == 0 ? std::string_view{}
                                               : symbol(word(pool + header->second + std::uint64_t{index} * 8));
}

std::optional<std::uint32_t> HotSpot::field_offset(std::uint64_t klass, std::string_view name,
                                                   std::string_view type) const {
    if (offsets_.contains("InstanceKlass::_fieldinfo_stream"))
        return packed_field(klass, name, type);
    // Up to JDK 20: six 16-bit numbers for each field.
    struct Slots {
        std::uint16_t access, name, type, initial, offset_low, offset_high;
    };
    const std::uint64_t fields = word(klass + offset("InstanceKlass::_fields")) + offset("Array<u2>::_data");
    const auto count = memory_->value<std::uint16_t>(GuestVirt(klass + offset("InstanceKlass::_java_fields_count")));
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(count.value_or(0), kMaxFields); ++i) {
        const auto slots = memory_->value<Slots>(GuestVirt(fields + i * sizeof(Slots)));
        // the low two bits say how it is packed
        if (slots && pool_symbol(klass, slots->name) == name && pool_symbol(klass, slots->type) == type)
            return (std::uint32_t{slots->offset_high} << 16 | slots->offset_low) >> 2;
    }
    return std::nullopt;
}

// JDK 21 and later: a stream of numbers. src/hotspot/share/oops/fieldInfo.hpp.
std::optional<std::uint32_t> HotSpot::packed_field(std::uint64_t klass, std::string_view name,
                                                   std::string_view type) const {
    constexpr std::uint32_t kInitialized = 1, kGeneric = 4, kContended = 16;
    const std::uint64_t stream = word(klass + offset("InstanceKlass::_fieldinfo_stream"));
    const auto length = memory_->value<std::uint32_t>(GuestVirt(stream + offset("Array<int>::_length")));
    Unsigned5 numbers(
        memory_->bytes(GuestVirt(stream + offset("Array<u1>::_data")), std::min(length.value_or(0), 1u << 16)));
    const std::uint32_t count = numbers.next().value_or(0);
    numbers.next(); // number of fields that the JVM added
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(count, kMaxFields); ++i) {
        const auto name_index = numbers.next(), type_index = numbers.next(), at = numbers.next(),
                   access = numbers.next(), flags = numbers.next();
        if (!name_index || !type_index || !at || !access || !flags)
            return std::nullopt;
        for (const std::uint32_t bit : {kInitialized, kGeneric, kContended})
            if (*flags & bit)
                numbers.next();
        if (pool_symbol(klass, *name_index) == name && pool_symbol(klass, *type_index) == type)
            return *at;
    }
    return std::nullopt;
}

bool HotSpot::has_class(std::uint64_t object, std::uint64_t wanted, bool or_derived) const {
    // The word after the mark word is the class pointer, or its 32-bit compressed form.
    constexpr std::uint64_t kKlass = 8;
    const auto base = variable({"CompressedKlassPointers::_narrow_klass._base", "CompressedKlassPointers::_base"});
    const auto shift = variable({"CompressedKlassPointers::_narrow_klass._shift", "CompressedKlassPointers::_shift"});
    const auto narrow = memory_->value<std::uint32_t>(GuestVirt(object + kKlass));
    if (wanted == 0 || !narrow || !base || !shift)
        return false;
    for (std::uint64_t klass : {*base + (std::uint64_t{*narrow} << (*shift & 7)), word(object + kKlass)}) {
        for (int depth = 0; klass != 0 && depth < (or_derived ? 32 : 1); ++depth) {
            if (klass == wanted)
                return true;
            klass = word(klass + offset("Klass::_super"));
        }
    }
    return false;
}

std::optional<GuestVirt> HotSpot::static_field(std::string_view name, std::string_view field,
                                               std::string_view type) const {
    const std::uint64_t klass = this->klass(name).value;
    const auto at = klass ? field_offset(klass, field, type) : std::nullopt;
    if (!at)
        return std::nullopt;
    // Static fields lie in the java.lang.Class object. The JVM's handle to it is a pointer to a pointer.
    const std::uint64_t mirror = word(word(klass + offset("Klass::_java_mirror")));
    return has_class(mirror, this->klass("java/lang/Class").value, false) ? std::optional(GuestVirt(mirror + *at))
                                                                          : std::nullopt;
}

std::optional<GuestVirt> HotSpot::field(GuestVirt object, std::string_view name, std::string_view field,
                                        std::string_view type) const {
    const std::uint64_t klass = this->klass(name).value;
    const auto at = has_class(object.value, klass, true) ? field_offset(klass, field, type) : std::nullopt;
    return at ? std::optional(object + *at) : std::nullopt;
}

std::optional<GuestVirt> HotSpot::object_in(std::optional<GuestVirt> field, std::string_view name) const {
    const auto narrow = field ? memory_->value<std::uint32_t>(*field) : std::nullopt;
    const auto base = variable({"CompressedOops::_narrow_oop._base", "CompressedOops::_base"});
    const auto shift = variable({"CompressedOops::_narrow_oop._shift", "CompressedOops::_shift"});
    if (!narrow || !base || !shift)
        return std::nullopt;
    for (const std::uint64_t object : {*base + (std::uint64_t{*narrow} << (*shift & 7)), word(field->value)})
        if (object % 8 == 0 && has_class(object, klass(name).value, false))
            return GuestVirt(object);
    return std::nullopt;
}

std::vector<GuestVirt> HotSpot::threads() const {
    std::vector<GuestVirt> out;
    const std::uint64_t list = variable({"ThreadsSMRSupport::_java_thread_list"}).value_or(0);
    const auto count = memory_->value<std::uint32_t>(GuestVirt(list + offset("ThreadsList::_length")));
    const std::uint64_t threads = word(list + offset("ThreadsList::_threads"));
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(count.value_or(0), kMaxThreads); ++i) {
        const std::uint64_t thread = word(threads + i * 8);
        const std::uint64_t object = word(word(thread + offset("JavaThread::_threadObj")));
        if (has_class(object, klass("java/lang/Thread").value, true))
            out.push_back(GuestVirt(object));
    }
    return out;
}

} // namespace kvmserver::unique
