#include "src/daemon/hook_request.hpp"

#include <fmt/format.h>

#include <charconv>

namespace kvmserver::daemon {
namespace {

// Without its query, %XX decoded: "/%72estored" is "/restored" to most programs.
std::string decoded(std::string_view path) {
    path = path.substr(0, path.find('?'));
    std::string out;
    for (std::size_t i = 0; i < path.size(); ++i) {
        unsigned value = 0;
        const char* const digits = path.data() + i + 1;
        if (path[i] == '%' && path.size() - i > 2 && std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2) {
            out += static_cast<char>(value);
            i += 2;
        } else {
            out += path[i];
        }
    }
    return out;
}

} // namespace

bool is_hook_request(std::string_view method, std::string_view path, std::string_view hook) {
    return !hook.empty() && method == "POST" && decoded(path) == decoded(hook);
}

request::Problem hook_refused(const std::string& hook, const char* name, const std::string& function) {
    request::Problem problem = problem_for(request::Outcome::no_route, {});
    problem.detail = fmt::format("POST {} is the {} hook of {}, which only kvmserver calls.", hook, name, function);
    problem.hint = "";
    return problem;
}

} // namespace kvmserver::daemon
