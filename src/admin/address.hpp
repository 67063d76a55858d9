// Addresses and sockets of the admin listener.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::admin {

struct Address {
    std::filesystem::path socket; // path of a Unix socket; "": TCP
    std::string host;             // a name or an address, without brackets
    std::uint16_t port = 0;       // 0: any free port
};

// Parses "/PATH", "unix:PATH", "HOST:PORT", "[::1]:PORT" or ":PORT" (loopback). Throws UserError (usage).
Address parse_address(const std::string& text);
// Where commands look for the daemon of a store.
std::filesystem::path default_socket(const std::filesystem::path& store);

// Opens a listening TCP socket. Sets the actual address and whether it is a loopback address. Throws UserError
// (conflict: the address is in use) and HostError.
tinykvm::UniqueFd listen_tcp(const Address& address, std::string& actual, bool& loopback);

// A listening Unix socket that only its owner may connect to: mode 0600, in a folder that nobody else may change.
// Replaces the socket file of a process that died. The destructor removes the file.
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
    std::string name_; // the file name within the folder
    tinykvm::UniqueFd folder_, socket_;
    std::uint64_t inode_ = 0;
};

// Connects to a Unix socket, however long its path is. Returns an empty fd and sets errno on failure.
tinykvm::UniqueFd connect_unix(const std::filesystem::path& path);

} // namespace kvmserver::admin
