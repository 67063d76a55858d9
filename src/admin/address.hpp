// Where the admin listener listens.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::admin {

struct Address {
    std::filesystem::path socket; // a Unix socket; "": TCP
    std::string host;             // a name or an address, without []
    std::uint16_t port = 0;       // 0: any
};

// "/PATH", "unix:PATH", "HOST:PORT", "[::1]:PORT", ":PORT" (loopback). Throws UserError (usage).
Address parse_address(const std::string& text);
// Where commands look for the daemon of a store.
std::filesystem::path default_socket(const std::filesystem::path& store);

// Listening sockets. Throw UserError (conflict: somebody listens there already) and HostError.
tinykvm::UniqueFd listen_tcp(const Address& address, std::string& actual, bool& loopback);

// A socket that only its owner may connect to: mode 0600, in a folder that nobody else may change. One that
// is left over from a process that died is replaced. The name goes with this object.
class UnixListener {
public:
    explicit UnixListener(std::filesystem::path path);
    ~UnixListener();
    UnixListener(const UnixListener&) = delete;
    UnixListener& operator=(const UnixListener&) = delete;
    tinykvm::UniqueFd take() { return std::move(socket_); }

private:
    void require_private_folder() const;
    void remove_dead() const;
    std::filesystem::path path_;
    std::string name_; // in the folder
    tinykvm::UniqueFd folder_, socket_;
    std::uint64_t inode_ = 0;
};

// Connects to a Unix socket however long its path is; an empty one and errno when that fails.
tinykvm::UniqueFd connect_unix(const std::filesystem::path& path);

} // namespace kvmserver::admin
