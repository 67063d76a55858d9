// The remotes that `kvmserver login` knows, in one file that only its owner may read.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace kvmserver::remote {

struct Remote {
    std::string url, token;
    std::string ca_file; // "": none of its own
};

class Remotes {
public:
    // $KVMSERVER_REMOTES, else ~/.config/kvmserver/remotes.json ($XDG_CONFIG_HOME).
    static std::filesystem::path default_file();
    // A file that is not there holds none. Throws UserError (not_permitted) for one that others may read, or
    // that is neither this user's nor root's.
    explicit Remotes(std::filesystem::path file);

    const std::map<std::string, Remote>& all() const { return all_; }
    // By name or by URL.
    std::optional<Remote> find(const std::string& name_or_url) const;
    // Both change what is in the file by then, which may be more than this object has read, and are durable
    // when they return. Throw HostError.
    void set(const std::string& name, const Remote& remote);
    bool remove(const std::string& name); // false: there is none

private:
    void save() const;
    std::filesystem::path file_;
    std::map<std::string, Remote> all_;
};

// A token in a file that only its owner may read. Throws UserError.
std::string token_from_file(const std::filesystem::path& file);

} // namespace kvmserver::remote
