#include "src/common/unix_address.hpp"

#include <sys/socket.h>

#include <cstring>

#include "tinykvm/base/error.hpp"

namespace kvmserver {

sockaddr_un unix_address(int folder, const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = "/proc/self/fd/" + std::to_string(folder) + "/" + name;
    if (path.size() >= sizeof address.sun_path)
        throw tinykvm::UserError(tinykvm::ExitCode::usage, name + ": the name of the socket is too long");
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return address;
}

} // namespace kvmserver
