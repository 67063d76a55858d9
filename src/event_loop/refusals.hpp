// What a program was refused for lack of a permission, kept to be told once when it did not get to serve.
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
    // "--FLAG=VALUE would allow it", of which the value may be anything; all else is left out.
    void add(std::string_view line);
    bool empty() const { return flags_.empty(); }
    // How it is found out which files are there; all are, if it is not said.
    void set_exists(std::function<bool(const std::string& path)> exists) { exists_ = std::move(exists); }
    // What would have been allowed by which flags, and the same for a manifest. Files that are not there are left out:
    // programs look in many places. Empty when nothing is left.
    std::vector<std::string> advice() const;

private:
    std::vector<std::string> values_of(const std::string& flag) const;

    std::function<bool(const std::string&)> exists_;
    std::map<std::string, std::set<std::string>> flags_; // without "--"
};

} // namespace kvmserver
