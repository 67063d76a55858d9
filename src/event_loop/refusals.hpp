// Collects what a program was refused for lack of a permission, to print it once if the program failed to start.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace kvmserver {

class Refusals {
public:
    // Keeps lines of the form "--FLAG=VALUE would allow it" and ignores all others.
    void add(std::string_view line);
    bool empty() const { return flags_.empty(); }
    // The program was refused what no permission allows: there is no advice then.
    void none_would_help() { hopeless_ = true; }
    // Sets how to find out whether a file exists; without it all are assumed to exist.
    void set_exists(std::function<bool(const std::string& path)> exists) { exists_ = std::move(exists); }
    // Lines that list the flags that would have allowed it, and the same for a manifest. Files that do not exist are
    // left out, since programs look in many places. Empty if nothing is left.
    std::vector<std::string> advice() const;

private:
    std::vector<std::string> values_of(const std::string& flag) const;

    std::function<bool(const std::string&)> exists_;
    std::map<std::string, std::set<std::string>> flags_; // without "--"
    bool hopeless_ = false;
};

} // namespace kvmserver
