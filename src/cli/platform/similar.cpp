#include "src/cli/platform/similar.hpp"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "src/cli/help/nearest.hpp"
#include "src/cli/platform/platform.hpp"

namespace kvmserver::cli::platform {
namespace {

constexpr unsigned kPage = 500;

// All names, or, where there are very many, some that begin with the same letter.
std::vector<std::string> names_near(const std::string& name, Connection& platform) {
    const std::string page = fmt::format("/v1/functions?limit={}", kPage);
    nlohmann::json reply = platform.call("GET", page);
    if (reply.contains("next"))
        reply = platform.call("GET", fmt::format("{}&after={}", page, encoded(name.substr(0, 1))));
    std::vector<std::string> names;
    for (const nlohmann::json& function : reply.at("functions"))
        names.push_back(function.at("name"));
    return names;
}

} // namespace

std::string similar_function(const tinykvm::UserError& error, const Command& command, const Invocation& invocation,
                             Context& context) {
    if (error.code() != tinykvm::ExitCode::not_found)
        return {};
    const std::string_view what = error.what();
    for (std::size_t i = 0; i < command.words.size() && i < invocation.operands.size(); ++i) {
        const std::string name = invocation.operands[i].substr(0, invocation.operands[i].find('@'));
        if (command.words[i] != Words::functions || name.empty() ||
            what.find(fmt::format("there is no function {}:", name)) == what.npos)
            continue;
        try {
            return did_you_mean(name, names_near(name, *connect(invocation, context)));
        } catch (const std::exception&) { // the first error matters
            return {};
        }
    }
    return {};
}

} // namespace kvmserver::cli::platform
