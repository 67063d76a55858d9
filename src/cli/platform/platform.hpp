// What the commands over a store share: their options, the store itself, printing.
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/cli/command.hpp"
#include "src/store/functions.hpp"
#include "src/store/store.hpp"

namespace kvmserver::cli {

Command deploy_command();
Command list_command(const char* name); // list, ls
Command describe_command();
Command versions_command();
Command rollback_command();
Command traffic_command();
Command delete_command();
Command env_command();
Command secret_command();
Command gc_command();
Command verify_command();
Command push_command();
Command pull_command();

namespace platform {

inline constexpr OptionSpec kStore{.name = "store",
                                   .kind = Kind::text,
                                   .group = "Options",
                                   .value = "DIR",
                                   .help = "the store ($KVMSERVER_STORE, else that of the user)"};
inline constexpr OptionSpec kJson{.name = "json", .group = "Options", .help = "print one JSON object"};
inline constexpr OptionSpec kQuiet{
    .name = "quiet", .letter = 'q', .group = "Options", .help = "print results only, no progress"};
inline constexpr OptionSpec kDryRun{
    .name = "dry-run", .group = "Options", .help = "only say what would happen"};

// Those of the command, and the three that all have.
std::vector<OptionSpec> options(std::initializer_list<OptionSpec> own = {});

// Throws UserError (usage) when there are fewer or more operands.
void expect_operands(const Invocation& invocation, std::string_view command, std::string_view synopsis,
                     std::size_t least, std::size_t most);
bool flag(const Invocation& invocation, std::string_view name);
std::optional<std::string> text(const Invocation& invocation, std::string_view name);
// A whole number from 0 on; `what` is for the message.
std::uint64_t number(std::string_view text, std::string_view what);
std::uint64_t version_number(const std::string& text); // "3" or "v3"

std::filesystem::path store_path(const Invocation& invocation, const Context& context);
// Whether one is there. (Looking must not make one.)
bool store_exists(const std::filesystem::path& path);
enum class Absent { make, error };
// Says on stderr what opening it had to mend.
std::unique_ptr<store::Store> open_store(const Invocation& invocation, Context& context,
                                         Absent absent = Absent::error);

std::string bytes_text(std::uint64_t bytes);                 // "31 MiB"
std::string time_text(std::int64_t ms);                      // "2026-11-21T03:00:09Z"
std::string live_text(const std::vector<store::Live>& live); // "v4", "v3:10%,v4:90%", "none"
std::string url_of(const store::Route& route);               // as served on this host's port 8080
nlohmann::json live_json(const std::vector<store::Live>& live);
nlohmann::json routes_json(const std::vector<store::Route>& routes);
nlohmann::json version_json(const store::VersionInfo& version);
void print_json(Context& context, const nlohmann::json& object);

} // namespace platform
} // namespace kvmserver::cli
