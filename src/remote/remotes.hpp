// The remotes of `kvmserver login`, in a file that only its owner may read.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace kvmserver::remote {

struct Remote {
    std::string url, token;
    std::string ca_file; // "": no own certificate authority
};

class Remotes {
public:
    // $KVMSERVER_REMOTES, or kvmserver/remotes.json in $XDG_CONFIG_HOME (~/.config).
    static std::filesystem::path default_file();
    // A missing file means no remotes. Throws UserError (not_permitted) if others may read it, or if its owner is
    // neither this user nor root.
    explicit Remotes(std::filesystem::path file);

    const std::map<std::string, Remote>& all() const { return all_; }
    // Finds a remote by name or URL.
    std::optional<Remote> find(const std::string& name_or_url) const;
    // Both re-read the file under a lock, change it, and are durable when they return. Throw HostError.
    void set(const std::string& name, const Remote& remote);
    bool remove(const std::string& name); // false: there is no such remote

private:
    void save() const;
    std::filesystem::path file_;
    std::map<std::string, Remote> all_;
};

// Reads a token from a file that only its owner may read. Throws UserError.
std::string token_from_file(const std::filesystem::path& file);

} // namespace kvmserver::remote
