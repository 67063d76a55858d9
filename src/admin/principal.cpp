#include "src/admin/principal.hpp"

#include <fmt/format.h>
#include <pwd.h>

#include <vector>

namespace kvmserver::admin {
namespace {

// "uid 1000" if the host has no name for it.
std::string user_name(uid_t uid) {
    std::vector<char> space(16384);
    passwd entry{};
    passwd* found = nullptr;
    if (::getpwuid_r(uid, &entry, space.data(), space.size(), &found) == 0 && found)
        return found->pw_name;
    return fmt::format("uid {}", uid);
}

} // namespace

store::Author Principal::author() const {
    if (local_)
        return {.token = false, .name = user_name(uid_), .tenant = ""};
    return {.token = true, .name = token_.name, .tenant = token_.prefix};
}

} // namespace kvmserver::admin
