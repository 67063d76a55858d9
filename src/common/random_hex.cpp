#include "src/common/random_hex.hpp"

#include <sys/random.h>

#include <cstdint>
#include <vector>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver {

std::string random_hex(std::size_t count) {
    std::vector<std::uint8_t> bytes(count);
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(count)) // never short up to 256 bytes
        tinykvm::throw_errno("getrandom");
    return tinykvm::to_hex(bytes);
}

} // namespace kvmserver
