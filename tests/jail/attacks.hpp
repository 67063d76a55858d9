// What somebody tries who has broken out of a machine into the process of a function.
#pragma once
#include <functional>
#include <map>
#include <string>

namespace attacks {

// What the attacker knows: paths and process numbers of the host.
using Facts = std::map<std::string, std::string>;

// "" when it got nowhere, else what it has reached. Errors are numbers of errno.
using Attack = std::function<std::string(const Facts&)>;
const std::map<std::string, Attack>& all();

} // namespace attacks
