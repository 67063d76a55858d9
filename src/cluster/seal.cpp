#include "src/cluster/seal.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "src/common/digest.hpp"
#include "src/common/private_file.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cluster {

namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr char kForm = 1;
constexpr std::size_t kNonce = 12, kTag = 16, kHead = 1 + kNonce;
constexpr std::size_t kLeastSecret = 32;
constexpr std::size_t kMaxText = 64 << 20;

struct FreeContext {
    void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using CipherContext = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

CipherContext new_context() {
    CipherContext context(EVP_CIPHER_CTX_new());
    if (!context)
        throw std::bad_alloc();
    return context;
}

unsigned char* bytes_of(char* text) { return reinterpret_cast<unsigned char*>(text); }
const unsigned char* bytes_of(const char* text) { return reinterpret_cast<const unsigned char*>(text); }

std::string compressed(std::string_view text) {
    std::string out(ZSTD_compressBound(text.size()), '\0');
    const std::size_t bytes = ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3);
    if (ZSTD_isError(bytes) != 0)
        throw std::bad_alloc();
    out.resize(bytes);
    return out;
}

std::optional<std::string> decompressed(std::string_view bytes) {
    const auto size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
    if (size > kMaxText) // also if it is not known
        return std::nullopt;
    std::string out(size, '\0');
    return ZSTD_decompress(out.data(), out.size(), bytes.data(), bytes.size()) == size ? std::optional(std::move(out))
                                                                                       : std::nullopt;
}

} // namespace

Seal Seal::of_file(const std::string& option, const std::string& file) {
    const auto wrong = [&](const std::string& why) {
        return UserError(ExitCode::usage, fmt::format("{} {}: {}", option, file, why));
    };
    std::string secret = read_private_file(option, file);
    while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r'))
        secret.pop_back(); // editors add one
    if (secret.size() < kLeastSecret)
        throw wrong(fmt::format("a key has at least {} bytes: openssl rand -hex 32 > FILE makes one", kLeastSecret));
    return Seal(secret);
}

Seal::Seal(std::string_view secret) {
    const std::string input = fmt::format("kvmserver cluster 1\n{}", secret);
    const Digest digest = sha256(input);
    static_assert(sizeof(digest.bytes) == sizeof(key_));
    std::memcpy(key_.data(), digest.bytes.data(), key_.size());
}

std::string Seal::seal(std::string_view text, std::string_view place) const {
    const std::string packed = compressed(text);
    std::string out(kHead + packed.size() + kTag, kForm);
    unsigned char* const nonce = bytes_of(out.data()) + 1;
    const CipherContext context = new_context();
    int length = 0;
    const bool done =
        RAND_bytes(nonce, kNonce) == 1 &&
        EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, key_.data(), nonce) == 1 &&
        EVP_EncryptUpdate(context.get(), nullptr, &length, bytes_of(place.data()), static_cast<int>(place.size())) ==
            1 &&
        EVP_EncryptUpdate(context.get(), nonce + kNonce, &length, bytes_of(packed.data()),
                          static_cast<int>(packed.size())) == 1 &&
        EVP_EncryptFinal_ex(context.get(), nonce + kNonce + length, &length) == 1 &&
        EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, kTag, nonce + kNonce + packed.size()) == 1;
    if (!done)
        throw UserError(ExitCode::failure, "a value for the cluster cannot be sealed: OpenSSL has no AES-256-GCM here");
    return out;
}

std::optional<std::string> Seal::open(std::string_view sealed, std::string_view place) const {
    if (sealed.size() < kHead + kTag || sealed.size() > kMaxText || sealed.front() != kForm)
        return std::nullopt;
    std::string packed(sealed.size() - kHead - kTag, '\0');
    std::string tag(sealed.substr(sealed.size() - kTag));
    const CipherContext context = new_context();
    int length = 0, rest = 0;
    const bool done =
        EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, key_.data(), bytes_of(sealed.data()) + 1) == 1 &&
        EVP_DecryptUpdate(context.get(), nullptr, &rest, bytes_of(place.data()), static_cast<int>(place.size())) == 1 &&
        EVP_DecryptUpdate(context.get(), bytes_of(packed.data()), &length, bytes_of(sealed.data()) + kHead,
                          static_cast<int>(packed.size())) == 1 &&
        EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, kTag, tag.data()) == 1 &&
        EVP_DecryptFinal_ex(context.get(), bytes_of(packed.data()) + length, &rest) == 1;
    return done ? decompressed(packed) : std::nullopt;
}

} // namespace kvmserver::cluster
