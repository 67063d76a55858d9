#include "src/snapshot/digest.hpp"

// The EVP interface would bring all of OpenSSL, whose loading alone costs a millisecond of each start;
// SHA-256 by itself is deprecated only in favour of it.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "src/snapshot/text.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

Sha256 sha256_bytes(std::span<const std::byte> bytes) {
    Sha256 digest{};
    SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
    return digest;
}

std::string sha256_of(std::span<const std::byte> bytes) { return to_hex(sha256_bytes(bytes)); }

std::string sha256_of_file(int fd) {
    SHA256_CTX context;
    SHA256_Init(&context);
    std::vector<unsigned char> buffer(256 << 10);
    for (off_t offset = 0;;) {
        const ssize_t n = ::pread(fd, buffer.data(), buffer.size(), offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            tinykvm::throw_errno("read back the snapshot");
        if (n == 0)
            break;
        SHA256_Update(&context, buffer.data(), static_cast<std::size_t>(n));
        offset += n;
    }
    std::array<unsigned char, 32> digest{};
    SHA256_Final(digest.data(), &context);
    return to_hex(digest);
}

} // namespace kvmserver
