#include "tinykvm/elf/ld_cache.hpp"

#include <fcntl.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/elf/byte_source.hpp"

namespace tinykvm {
namespace {

// glibc: sysdeps/generic/dl-cache.h. A file begins with a new header, or with an old header and its entries, followed
// by a new header at a multiple of 8 bytes. Files with old entries only (glibc before 2.2) are not read.
struct OldHeader {
    char magic[12]; // 11 characters and padding
    std::uint32_t count;
};
struct OldEntry {
    std::int32_t flags;
    std::uint32_t key, value;
};
struct NewHeader {
    char magic[20]; // magic and version
    std::uint32_t count;
    std::uint32_t string_bytes;
    std::uint8_t flags;
    std::uint8_t padding[3];
    std::uint32_t extension;
    std::uint32_t unused[3];
};
struct NewEntry {
    std::int32_t flags;
    std::uint32_t key, value; // from the beginning of the new header
    std::uint32_t os_version;
    std::uint64_t hwcap;
};
static_assert(sizeof(OldHeader) == 16 && sizeof(OldEntry) == 12 && sizeof(NewHeader) == 48 && sizeof(NewEntry) == 24);

constexpr std::string_view kOldMagic = "ld.so-1.7.0";
constexpr std::string_view kNewMagic = "glibc-ld.so.cache1.1";
constexpr std::uint8_t kEndianMask = 3, kEndianUnset = 0, kEndianLittle = 2;
constexpr std::int32_t kLibc6X8664 = 0x0303; // FLAG_ELF_LIBC6 | FLAG_X8664_LIB64
constexpr std::size_t kMaxBytes = 64 << 20;
constexpr std::size_t kMaxEntryText = 4096;

} // namespace

LdCache LdCache::parse(std::span<const std::byte> bytes) {
    LdCache cache;
    const auto begins_with = [&](std::string_view magic) {
        return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
    };
    if (begins_with(kOldMagic)) {
        const auto old = SpanSource(bytes).load<OldHeader>(0);
        if (!old)
            return cache;
        const std::uint64_t skip = (sizeof(OldHeader) + std::uint64_t{old->count} * sizeof(OldEntry) + 7) & ~7ull;
        if (skip > bytes.size())
            return cache;
        bytes = bytes.subspan(skip);
    }
    if (!begins_with(kNewMagic))
        return cache;
    const SpanSource source(bytes);
    const auto header = source.load<NewHeader>(0);
    if (!header)
        return cache;
    const std::uint8_t endian = header->flags & kEndianMask;
    if (endian != kEndianUnset && endian != kEndianLittle)
        return cache;
    for (std::uint32_t i = 0; i < header->count; ++i) {
        const auto entry = source.load<NewEntry>(sizeof(NewHeader) + std::uint64_t{i} * sizeof(NewEntry));
        if (!entry)
            break;
        if (entry->flags != kLibc6X8664)
            continue;
        auto name = source.load_string(entry->key, bytes.size(), kMaxEntryText);
        auto path = source.load_string(entry->value, bytes.size(), kMaxEntryText);
        if (name && path && !name->empty() && path->starts_with('/'))
            cache.paths_[std::move(*name)].push_back(std::move(*path));
    }
    return cache;
}

LdCache LdCache::from_file(const std::string& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd)
        return {};
    const FileSource source(fd.get(), path);
    if (source.size() > kMaxBytes)
        return {};
    std::vector<std::byte> bytes(source.size());
    return source.read(0, bytes) ? parse(bytes) : LdCache{};
}

std::vector<std::string> LdCache::find(const std::string& name) const {
    const auto at = paths_.find(name);
    return at == paths_.end() ? std::vector<std::string>{} : at->second;
}

} // namespace tinykvm
