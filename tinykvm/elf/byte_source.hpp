// Bytes of a file or of memory, always read by copying.
//
// Files are read with pread instead of being mapped: if one is truncated meanwhile, that is a short read, not a SIGBUS.
// Each value is fetched once and validated after that.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

namespace tinykvm {

class ByteSource {
public:
    virtual ~ByteSource() = default;

    std::uint64_t size() const { return size_; }

    // Fills `out` with the bytes at `offset`; false when they are not all there.
    bool read(std::uint64_t offset, std::span<std::byte> out) const {
        return offset <= size_ && out.size() <= size_ - offset && (out.empty() || fetch(offset, out));
    }

    template <class T>
    std::optional<T> load(std::uint64_t offset) const {
        static_assert(std::is_trivially_copyable_v<T>);
        T value;
        if (!read(offset, std::as_writable_bytes(std::span(&value, 1))))
            return std::nullopt;
        return value;
    }

    // The string at `offset`. nullopt unless its NUL comes after at most `max` bytes and before `end`.
    std::optional<std::string> load_string(std::uint64_t offset, std::uint64_t end, std::size_t max) const;

protected:
    explicit ByteSource(std::uint64_t size) : size_(size) {}
    // Called for ranges within size() only.
    virtual bool fetch(std::uint64_t offset, std::span<std::byte> out) const = 0;

private:
    std::uint64_t size_;
};

// Does not own the bytes.
class SpanSource final : public ByteSource {
public:
    explicit SpanSource(std::span<const std::byte> bytes) : ByteSource(bytes.size()), bytes_(bytes) {}

private:
    bool fetch(std::uint64_t offset, std::span<std::byte> out) const override {
        std::memcpy(out.data(), bytes_.data() + offset, out.size());
        return true;
    }
    std::span<const std::byte> bytes_;
};

// Does not own the descriptor. The size is that at construction.
class FileSource final : public ByteSource {
public:
    // Throws HostError naming `what` when the file cannot be examined.
    FileSource(int fd, const std::string& what);

private:
    bool fetch(std::uint64_t offset, std::span<std::byte> out) const override;
    int fd_;
};

} // namespace tinykvm
