// Seals what leaves the node: who has etcd but not the key can neither read a value nor make one.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace kvmserver::cluster {

// AES-256-GCM (NIST SP 800-38D) over the zstd-compressed text. A sealed text is the byte 1, a random nonce of 12 bytes,
// the encrypted bytes, and a tag of 16 bytes.
class Seal {
public:
    // Of a file with at least 32 bytes, such as `openssl rand -hex 32` makes, which others may not read. Throws
    // UserError (usage), which names the option and the file.
    static Seal of_file(const std::string& option, const std::string& file);
    explicit Seal(std::string_view secret);

    // `place` is what the text is for (its key): it cannot be opened as another one.
    std::string seal(std::string_view text, std::string_view place) const;
    // nullopt: it was sealed with another key, for another place, or altered.
    std::optional<std::string> open(std::string_view sealed, std::string_view place) const;

private:
    std::array<unsigned char, 32> key_{};
};

} // namespace kvmserver::cluster
