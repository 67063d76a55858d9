#include "src/cli/platform/platform.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>

#include "src/cli/events/json_events.hpp"
#include "src/cli/paths.hpp"
#include "src/common/environment.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::platform {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

} // namespace

std::vector<OptionSpec> options(std::initializer_list<OptionSpec> own) {
    std::vector<OptionSpec> all(own);
    all.insert(all.end(), {kStore, kJson, kQuiet, kYes, kRemote, kTokenFile, kCacert, kTimeout});
    return all;
}

std::vector<OptionSpec> options_with_events(std::initializer_list<OptionSpec> own) {
    std::vector<OptionSpec> all = options(own);
    *std::ranges::find(all, kJson.name, &OptionSpec::name) = kJsonEvents;
    return all;
}

std::optional<double> timeout(const Invocation& invocation) { return seconds_option(invocation, "timeout", 1e7); }

std::optional<double> seconds_option(const Invocation& invocation, const char* name, double most) {
    const auto given = text(invocation, name);
    if (!given)
        return std::nullopt;
    char* end = nullptr;
    const double seconds = std::strtod(given->c_str(), &end);
    if (end == given->c_str() || *end != '\0' || !(seconds > 0) || seconds > most)
        throw UserError(ExitCode::usage,
                        fmt::format("--{}: '{}' is not a number of seconds above 0 and up to {}", name, *given, most));
    return seconds;
}

void expect_operands(const Invocation& invocation, std::string_view command, std::string_view synopsis,
                     std::size_t min_count, std::size_t max_count) {
    const std::size_t count = invocation.operands.size();
    if (count < min_count || count > max_count)
        throw UserError(ExitCode::usage,
                        fmt::format("usage: kvmserver {} {}; see kvmserver {} --help", command, synopsis, command));
}

jail::Mode jail_mode(const Invocation& invocation, std::string_view name) {
    const std::string word = text(invocation, name).value_or("auto");
    const auto mode = jail::mode_of(word);
    if (!mode)
        throw UserError(ExitCode::usage, fmt::format("--{}: '{}' is none of auto, strict, off", name, word));
    return *mode;
}

bool flag(const Invocation& invocation, std::string_view name) {
    const auto at = invocation.settings.find(name);
    if (at == invocation.settings.end())
        return false;
    if (const std::string& value = at->second.values.front(); value != "true" && value != "false")
        throw UserError(ExitCode::usage, fmt::format("--{}: '{}' is neither true nor false", name, value));
    return is_set(invocation.settings, name);
}

Talk talk(const Invocation& invocation) {
    const bool quiet = flag(invocation, kQuiet.name), verbose = flag(invocation, kVerbose.name);
    if (quiet && verbose)
        throw UserError(ExitCode::usage, "--quiet excludes --verbose");
    return quiet ? Talk::results : verbose ? Talk::everything : Talk::progress;
}

std::optional<std::string> text(const Invocation& invocation, std::string_view name) {
    const auto at = invocation.settings.find(name);
    if (at == invocation.settings.end())
        return std::nullopt;
    return at->second.values.front();
}

void add_message(const Invocation& invocation, nlohmann::json& body) {
    if (const auto message = text(invocation, kMessage.name)) {
        store::check_message(*message); // also: JSON holds only UTF-8
        body["message"] = *message;
    }
}

std::string read_stdin(std::size_t longest) {
    std::string bytes;
    char buffer[65536];
    while (bytes.size() < longest) {
        const ssize_t count = ::read(STDIN_FILENO, buffer, std::min(sizeof buffer, longest - bytes.size()));
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            tinykvm::throw_errno("read stdin");
        if (count == 0)
            break;
        bytes.append(buffer, static_cast<std::size_t>(count));
    }
    return bytes;
}

std::filesystem::path store_path(const Invocation& invocation, const Context& context) {
    if (const auto given = text(invocation, "store"))
        return absolute_path(context.folder, *given);
    if (const std::string set = environment_variable("KVMSERVER_STORE"); !set.empty())
        return absolute_path(context.folder, set);
    if (::geteuid() == 0)
        return "/var/lib/kvmserver";
    // The XDG specification says to ignore relative paths.
    if (const std::string data = environment_variable("XDG_DATA_HOME"); data.starts_with('/'))
        return std::filesystem::path(data) / "kvmserver";
    const std::string home = environment_variable("HOME");
    if (home.empty())
        throw UserError(ExitCode::usage, "neither $HOME nor $KVMSERVER_STORE is set: give --store DIR");
    return std::filesystem::path(home) / ".local/share/kvmserver";
}

bool store_exists(const std::filesystem::path& path) {
    for (const char* const name : {store::kIndex, store::kChunks}) {
        std::error_code error;
        const auto status = std::filesystem::status(path / name, error);
        if (std::filesystem::exists(status))
            return true;
        if (status.type() != std::filesystem::file_type::not_found)
            throw UserError(error == std::errc::permission_denied ? ExitCode::not_permitted : ExitCode::failure,
                            fmt::format("the store {} cannot be read: {}", path.string(), error.message()));
    }
    std::error_code error;
    if (const auto status = std::filesystem::status(path, error);
        std::filesystem::exists(status) && !std::filesystem::is_directory(status))
        throw UserError(ExitCode::failure, fmt::format("the store {} is not a folder", path.string()));
    return false;
}

std::unique_ptr<store::Store> open_store(const Invocation& invocation, Context& context) {
    const auto path = store_path(invocation, context);
    if (!store_exists(path))
        throw UserError(ExitCode::not_found,
                        fmt::format("there is no store in {}: `kvmserver deploy` makes one", path.string()));
    return open_store_at(path, context);
}

std::unique_ptr<store::Store> open_store_at(const std::filesystem::path& path, Context& context) {
    if (path.has_parent_path())
        std::filesystem::create_directories(path.parent_path());
    auto opened = std::make_unique<store::Store>(path);
    for (const store::Finding& finding : opened->notes())
        context.err << "kvmserver: " << finding.line << '\n';
    return opened;
}

std::string bytes_text(std::uint64_t bytes) {
    const char* const units[] = {"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024)
        return fmt::format("{} B", bytes);
    double value = static_cast<double>(bytes) / 1024;
    std::size_t unit = 0;
    for (; value >= 1024 && unit + 1 < std::size(units); ++unit)
        value /= 1024;
    return fmt::format("{:.{}f} {}", value, value < 10 ? 1 : 0, units[unit]);
}

std::string live_text(const nlohmann::json& live) {
    if (live.empty())
        return "none";
    if (live.size() == 1)
        return fmt::format("v{}", live[0].at("version").get<std::uint64_t>());
    std::string line;
    for (const nlohmann::json& part : live)
        line += fmt::format("{}v{}:{}%", line.empty() ? "" : ",", part.at("version").get<std::uint64_t>(),
                            part.at("percent").get<unsigned>());
    return line;
}

bool on_terminal() { return ::isatty(STDIN_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0; }

bool agreed(const Invocation& invocation, Context& context, const std::string& question) {
    if (flag(invocation, "yes"))
        return true;
    if (!on_terminal())
        throw UserError(ExitCode::usage,
                        fmt::format("'{}' needs an answer, and there is no terminal: -y says yes", question));
    context.err << question << " [y/N] " << std::flush;
    char answer[16];
    const ssize_t count = ::read(STDIN_FILENO, answer, sizeof answer);
    return count > 0 && (answer[0] == 'y' || answer[0] == 'Y');
}

void print_output(Context& context, const std::string& said) {
    context.err << said << (said.empty() || said.ends_with('\n') ? "" : "\n");
}

void print_json(Context& context, const nlohmann::json& object) { context.out << object.dump(2) << '\n'; }

void print_result(Context& context, const nlohmann::json& object) { context.events->result(object); }

} // namespace kvmserver::cli::platform
