// What a jail is to leave open, as plain values: decided by whoever trusts nobody, carried out in the process itself
// (enter.hpp).
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/jail/walls.hpp"

namespace kvmserver::jail {

// A file or folder of the host that is shown where it is on the host, with all beneath it.
struct Place {
    std::string path; // absolute
    bool write = false;
    bool operator==(const Place&) const = default;
};

// At most these are shown: of each place what lies within one of them, and no more may be changed there. Where links
// lead counts.
using Bound = std::vector<Place>;

struct Plan {
    Mode mode = Mode::automatic;
    bool network = false;             // it keeps the host's network
    bool connect = false;             // to TCP ports and abstract sockets there
    std::vector<Place> places;        // "/" is everything
    std::vector<Bound> bounds;        // all of them hold
    std::vector<std::string> folders; // that must exist, even if empty: where it works
    std::vector<std::string> hidden;  // files and folders that must not be seen, whatever is shown above them
    bool operator==(const Plan&) const = default;
};

// Adds a place; one that is there already gets the greater right of the two.
void add_place(Plan& plan, std::string path, bool write);

// One text, and back. Nothing: it is no such text, or names a path that is not absolute.
std::string to_text(const Plan& plan);
std::optional<Plan> plan_from(std::string_view text);

} // namespace kvmserver::jail
