#include "src/common/digest.hpp"

// Not the EVP interface: it loads all of OpenSSL, which costs a millisecond at each start. The SHA-256 functions are
// deprecated only in favour of EVP.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/io_buffer.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver {

std::string Digest::hex() const { return tinykvm::to_hex(bytes); }

std::optional<Digest> Digest::from_hex(std::string_view text) {
    Digest digest;
    const auto read = text.size() == 2 * digest.bytes.size() ? tinykvm::from_hex(text) : std::nullopt;
    if (!read)
        return std::nullopt;
    std::ranges::copy(*read, digest.bytes.begin());
    return digest;
}

void Sha256::Free::operator()(SHA256state_st* context) const { delete context; }

Sha256::Sha256() : context_(new SHA256_CTX) { SHA256_Init(context_.get()); }

void Sha256::update(std::span<const std::byte> bytes) { SHA256_Update(context_.get(), bytes.data(), bytes.size()); }

Digest Sha256::finish() {
    Digest digest;
    SHA256_Final(digest.bytes.data(), context_.get());
    return digest;
}

Digest sha256(std::span<const std::byte> bytes) {
    Sha256 sum;
    sum.update(bytes);
    return sum.finish();
}

Digest sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

Digest sha256_of_file(int fd, const std::string& what) {
    constexpr std::int64_t kSmallest = 4096, kLargest = 256 << 10;
    struct stat info {};
    if (::fstat(fd, &info) != 0)
        tinykvm::throw_errno("stat " + what);
    Sha256 sum;
    tinykvm::IoBuffer buffer(static_cast<std::size_t>(std::clamp<std::int64_t>(info.st_size + 1, kSmallest, kLargest)));
    for (std::uint64_t offset = 0;; offset += buffer.size()) {
        const auto count = tinykvm::read_at(fd, offset, buffer);
        if (!count)
            tinykvm::throw_errno("read " + what);
        sum.update(std::span(buffer).first(*count));
        if (*count < buffer.size())
            return sum.finish();
    }
}

} // namespace kvmserver
