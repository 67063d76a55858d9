// The options of tinykvm_program_set() as plain values.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tinykvm/linux/permissions.hpp"
#include "tinykvm/machine/state.hpp"

namespace kvmserver::embed {

struct Settings {
    std::string program; // as the user named it
    std::vector<std::string> arguments, env;
    std::string cwd;      // absolute; "": that of this process
    std::string ready_at; // symbol; "": the program itself says that it is ready
    std::string cpu;      // baseline
    bool verbose = false, code_as_is = false;
    tinykvm::Permissions permissions;
    tinykvm::Limits limits;
    std::set<std::string, std::less<>> given; // names of the options that were set

    // Throws UserError (usage) that names the option.
    void set(const std::string& option, const std::string& value);
    bool gives_permissions() const;
};

} // namespace kvmserver::embed
