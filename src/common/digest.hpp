// SHA-256 digests. They name chunks, snapshots and copies of pages.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

struct SHA256state_st;

namespace kvmserver {

struct Digest {
    std::array<std::uint8_t, 32> bytes{};
    auto operator<=>(const Digest&) const = default;
    std::string hex() const;                                      // 64 lower-case digits
    static std::optional<Digest> from_hex(std::string_view text); // accepts only what hex() writes
};

class Sha256 {
public:
    Sha256();
    void update(std::span<const std::byte> bytes);
    Digest finish(); // call once

private:
    struct Free {
        void operator()(SHA256state_st* context) const;
    };
    std::unique_ptr<SHA256state_st, Free> context_;
};

Digest sha256(std::span<const std::byte> bytes);
Digest sha256(std::string_view text);
// Digest of the whole file, regardless of its offset. Throws HostError naming `what`.
Digest sha256_of_file(int fd, const std::string& what);

} // namespace kvmserver
