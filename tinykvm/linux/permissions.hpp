// The permissions of a program on the host, as plain values: the flags of the command line, saved in snapshots.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tinykvm {

// A host folder shown to the guest at another path.
struct Volume {
    std::string host;
    std::string guest;
    bool read = true;
    bool write = false;
    bool execute = false;
    bool operator==(const Volume&) const = default;
};

// One rule of --allow-connect or --allow-listen. `host` is empty (any address), an IPv4 or IPv6 address, or a name
// ("localhost" means both loopback addresses). Port 0 means any port. For --allow-listen it may also be a Unix socket:
// "unix:/PATH" (the path and everything beneath it) or "unix:@NAME" (an abstract name).
struct NetRule {
    std::string host;
    std::uint16_t port = 0;
    bool operator==(const NetRule&) const = default;
};

struct Permissions {
    bool all = false;
    std::vector<std::string> read;  // absolute paths of files or folders; "/" means everything
    std::vector<std::string> write; // likewise; writing implies reading
    std::vector<std::string> env;   // names, or prefixes ending in '*'
    std::vector<NetRule> connect;
    std::vector<NetRule> listen;
    std::vector<Volume> volumes;
    // Absolute paths of the program, its interpreter and libraries: readable without a flag. May include folders, which
    // an ELF interpreter searches.
    std::vector<std::string> implied_read;
    // /tmp and /dev/shm are the machine's own even if everything is writable. Set for functions.
    bool always_own_folders = false;
    // Absolute host paths of kvmserver's own files, hidden whatever the permissions above say. Not saved in snapshots.
    std::vector<std::string> hidden;
    // This process shares a network namespace with other programs' processes. Nothing is reached there, nothing comes
    // in, and any address can be bound. Not saved in snapshots.
    bool shared_network = false;
    bool operator==(const Permissions&) const = default;
};

// Parse one item of a flag; throw UserError (ExitCode::usage) with a hint ("did you mean :8080?").
NetRule parse_net_rule(const std::string& flag, const std::string& text);    // "host:port", ":port", "host", "[::1]:80"
NetRule parse_listen_rule(const std::string& flag, const std::string& text); // the same, or "unix:/path", "unix:@name"
inline constexpr const char* kUnixRule = "unix:";
Volume parse_volume(const std::string& text); // "host:guest[:rwx]"
bool env_allowed(const Permissions&, const std::string& name);

} // namespace tinykvm
