// SHA-256: the name of what is in the store, of chunks and of copies of pages.
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
    static std::optional<Digest> from_hex(std::string_view text); // exactly what hex() makes
};

class Sha256 {
public:
    Sha256();
    void update(std::span<const std::byte> bytes);
    Digest finish(); // once

private:
    struct Free {
        void operator()(SHA256state_st* context) const;
    };
    std::unique_ptr<SHA256state_st, Free> context_;
};

Digest sha256(std::span<const std::byte> bytes);
Digest sha256(std::string_view text);
// Of the file from its beginning, whatever the offset. Throws HostError naming `what`.
Digest sha256_of_file(int fd, const std::string& what);

} // namespace kvmserver
