#include "src/store/digest.hpp"

#include <openssl/evp.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <vector>

#include "tinykvm/base/error.hpp"

namespace kvmserver::store {

namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

std::string to_hex(std::span<const std::uint8_t> bytes) {
    std::string text;
    text.reserve(2 * bytes.size());
    for (const std::uint8_t byte : bytes) {
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
    }
    return text;
}

} // namespace

std::string Digest::hex() const { return to_hex(bytes); }

std::optional<Digest> Digest::from_hex(std::string_view text) {
    Digest digest;
    if (text.size() != 2 * digest.bytes.size())
        return std::nullopt;
    for (std::size_t i = 0; i < digest.bytes.size(); ++i) {
        const auto high = kDigits.find(text[2 * i]), low = kDigits.find(text[2 * i + 1]);
        if (high == kDigits.npos || low == kDigits.npos)
            return std::nullopt;
        digest.bytes[i] = static_cast<std::uint8_t>(high << 4 | low);
    }
    return digest;
}

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1)
        throw std::bad_alloc();
}

void Sha256::update(std::span<const std::byte> bytes) {
    EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

Digest Sha256::finish() {
    Digest digest;
    EVP_DigestFinal_ex(context_.get(), digest.bytes.data(), nullptr);
    return digest;
}

Digest sha256(std::span<const std::byte> bytes) {
    Sha256 sum;
    sum.update(bytes);
    return sum.finish();
}

Digest sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

Digest sha256_of_file(int fd, const std::string& what) {
    Sha256 sum;
    std::vector<std::byte> buffer(256 << 10);
    for (off_t offset = 0;;) {
        const ssize_t n = ::pread(fd, buffer.data(), buffer.size(), offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            tinykvm::throw_errno("read " + what);
        if (n == 0)
            return sum.finish();
        sum.update(std::span(buffer).first(static_cast<std::size_t>(n)));
        offset += n;
    }
}

std::string random_hex(std::size_t count) {
    std::vector<std::uint8_t> bytes(count);
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(count)) // whole up to 256 bytes
        tinykvm::throw_errno("getrandom");
    return to_hex(bytes);
}

} // namespace kvmserver::store
