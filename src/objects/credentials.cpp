#include "src/objects/credentials.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "src/common/environment.hpp"
#include "src/common/private_file.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::objects {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

std::string stripped(const std::string& text) {
    const auto begin = text.find_first_not_of(" \t\r");
    return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// They become parts of header lines.
bool printable(const std::string& text) {
    return std::ranges::all_of(text, [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

} // namespace

Credentials read_credentials(const std::string& option, const std::string& file) {
    const auto wrong = [&](const std::string& why) {
        return UserError(ExitCode::usage, fmt::format("{} {}: {}", option, file, why));
    };
    Credentials out;
    std::istringstream text(read_private_file(option, file));
    std::string line;
    bool ours = false;
    while (std::getline(text, line)) {
        line = stripped(line);
        if (line.empty() || line.front() == '#' || line.front() == ';')
            continue;
        if (line.front() == '[') {
            ours = line == "[default]";
            continue;
        }
        const auto equals = line.find('=');
        if (!ours || equals == line.npos)
            continue;
        const std::string name = stripped(line.substr(0, equals)), value = stripped(line.substr(equals + 1));
        if (name == "aws_access_key_id")
            out.key_id = value;
        else if (name == "aws_secret_access_key")
            out.secret = value;
        else if (name == "aws_session_token")
            out.session_token = value;
    }
    if (out.key_id.empty() || out.secret.empty())
        throw wrong("its profile [default] must have aws_access_key_id and aws_secret_access_key");
    if (!printable(out.key_id) || !printable(out.secret) || !printable(out.session_token))
        throw wrong("a value in its profile [default] has a space or a control character");
    return out;
}

Credentials credentials_of_environment(const std::string& hint) {
    Credentials out{environment_variable("AWS_ACCESS_KEY_ID"), environment_variable("AWS_SECRET_ACCESS_KEY"),
                    environment_variable("AWS_SESSION_TOKEN")};
    if (out.key_id.empty() || out.secret.empty())
        throw UserError(
            ExitCode::usage,
            fmt::format("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not both set: set them, or {}", hint));
    if (!printable(out.key_id) || !printable(out.secret) || !printable(out.session_token))
        throw UserError(ExitCode::usage, "an AWS_ variable has a space or a control character");
    return out;
}

} // namespace kvmserver::objects
