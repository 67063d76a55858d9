#include "src/setup/environment.hpp"

#include <algorithm>

#include "tinykvm/linux/permissions.hpp"

extern char** environ;

namespace kvmserver {

using namespace tinykvm;

std::vector<std::string> guest_environment(const Options& options) {
    std::vector<std::string> out;
    for (char** entry = environ; *entry; ++entry) {
        const std::string text = *entry;
        const std::string name = text.substr(0, text.find('='));
        if (options.permissions.all || env_allowed(options.permissions, name))
            out.push_back(text);
    }
    for (const std::string& given : options.env) {
        const std::string name = given.substr(0, given.find('=')) + "=";
        std::erase_if(out, [&](const std::string& e) { return e.starts_with(name); });
        out.push_back(given);
    }
    for (const std::string& late : options.late_env)
        std::erase_if(out, [&](const std::string& e) { return e.starts_with(late.substr(0, late.find('=') + 1)); });
    return out;
}

} // namespace kvmserver
