// What a jail leaves open, as plain values. The plan is made by a process that trusts nobody, and carried out in the
// jailed process itself (enter.hpp).
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/jail/walls.hpp"

namespace kvmserver::jail {

// A file or folder of the host, with all beneath it, that is visible in the jail at the same path.
struct Place {
    std::string path; // absolute
    bool write = false;
    bool operator==(const Place&) const = default;
};

// An upper bound on places: only what lies within one of these is shown, and is writable only if the bound is. Paths
// are compared after resolving symlinks.
using Bound = std::vector<Place>;

struct Plan {
    Mode mode = Mode::automatic;
    bool network = false; // keep the host's network
    bool connect = false; // allow connections to TCP ports and abstract sockets there
    // Without `network`: not one that it shares with other functions. It may bind abstract sockets, or read /proc/net.
    bool own_network = false;
    std::vector<Place> places;        // "/": the whole file system
    std::vector<Bound> bounds;        // all apply
    std::vector<std::string> folders; // must exist, even if empty: the working directory
    std::vector<std::string> hidden;  // files and folders that stay hidden, even beneath a shown place
    bool operator==(const Plan&) const = default;
};

// Adds a place; one that is already listed becomes writable if either is.
void add_place(Plan& plan, std::string path, bool write);

// Serialised form, and back. nullopt when the text is malformed or names a path that is not absolute.
std::string to_text(const Plan& plan);
std::optional<Plan> plan_from(std::string_view text);

} // namespace kvmserver::jail
