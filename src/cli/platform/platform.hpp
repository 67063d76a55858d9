// What the commands on a store share: options, the store, printing.
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
#include "src/cli/platform/connection.hpp"
#include "src/jail/walls.hpp"
#include "src/ops/json.hpp"
#include "src/store/functions/functions.hpp"
#include "src/store/store.hpp"

namespace kvmserver::cli {

Command deploy_command();
Command list_command(const char* name); // list, ls
Command describe_command();
Command versions_command();
Command history_command();
Command rollback_command();
Command suspend_command();
Command resume_command();
Command migrate_command();
Command traffic_command();
Command delete_command();
Command env_command();
Command secret_command();
Command gc_command();
Command verify_command();
Command nodes_command();
Command drain_command();
Command uncordon_command();
Command push_command();
Command pull_command();
Command invoke_command();
Command logs_command();
Command top_command();
Command certificate_command();
Command token_command();
Command login_command();
Command remote_command();

namespace platform {

inline constexpr OptionSpec kStore{.name = "store",
                                   .kind = Kind::text,
                                   .group = "Options",
                                   .value = "DIR",
                                   .help = "the store ($KVMSERVER_STORE, else that of the user)"};
inline constexpr OptionSpec kJson{.name = "json", .group = "Options", .help = "print one JSON object"};
inline constexpr OptionSpec kJsonEvents{
    .name = kJson.name, .group = kJson.group, .help = "print events and the result, one JSON object a line"};
inline constexpr OptionSpec kQuiet{
    .name = "quiet", .letter = 'q', .group = "Options", .help = "print results only, no progress"};
// Of commands that run a build and `snapshot`.
inline constexpr OptionSpec kVerbose{.name = "verbose",
                                     .letter = 'v',
                                     .group = "Options",
                                     .help =
                                         "say what happens, each refusal, and what the program prints in its warm-up"};
inline constexpr OptionSpec kDryRun{.name = "dry-run", .group = "Options", .help = "only say what would happen"};

inline constexpr OptionSpec kMessage{.name = "message",
                                     .letter = 'm',
                                     .kind = Kind::text,
                                     .group = "Options",
                                     .value = "TEXT",
                                     .help = "why, for `kvmserver history`"};
inline constexpr OptionSpec kYes{.name = "yes", .letter = 'y', .group = "Options", .help = "do not ask"};
inline constexpr OptionSpec kTokenFile{.name = "token-file",
                                       .kind = Kind::text,
                                       .group = "Remote",
                                       .value = "FILE",
                                       .help = "the token, in a file of mode 0600 (else $KVMSERVER_TOKEN)"};
inline constexpr OptionSpec kCacert{
    .name = "cacert", .kind = Kind::text, .group = "Remote", .value = "FILE", .help = "authorities to trust, PEM"};
inline constexpr OptionSpec kTimeout{.name = "timeout",
                                     .kind = Kind::seconds,
                                     .group = "Remote",
                                     .value = "SECONDS",
                                     .help = "give up after so long without an answer (300; locally never)"};

inline constexpr OptionSpec kRemote{.name = "remote",
                                    .kind = Kind::text,
                                    .group = "Remote",
                                    .value = "REMOTE",
                                    .help = "another daemon: a name of `kvmserver remote list`, or https://HOST:PORT"};

// The command's own options, and those that all commands have.
std::vector<OptionSpec> options(std::initializer_list<OptionSpec> own = {});
// The same, with kJsonEvents in place of kJson.
std::vector<OptionSpec> options_with_events(std::initializer_list<OptionSpec> own = {});
// The value of --timeout. Throws UserError (usage).
std::optional<double> timeout(const Invocation& invocation);
// The same of another option of this kind.
std::optional<double> seconds_option(const Invocation& invocation, const char* name, double most);

// Throws UserError (usage) for fewer or more operands.
void expect_operands(const Invocation& invocation, std::string_view command, std::string_view synopsis,
                     std::size_t min_count, std::size_t max_count);
bool flag(const Invocation& invocation, std::string_view name);
enum class Talk { results, progress, everything }; // -q, neither, -v
// Throws UserError (usage) for both.
Talk talk(const Invocation& invocation);
// "auto" if it is not given. Throws UserError.
jail::Mode jail_mode(const Invocation& invocation, std::string_view name);
// Adds the value of --message, if it is given, to the body of a request. Throws BadValue.
void add_message(const Invocation& invocation, nlohmann::json& body);
std::optional<std::string> text(const Invocation& invocation, std::string_view name);

// All of stdin, or its first `longest` bytes. Throws HostError.
std::string read_stdin(std::size_t longest = std::string::npos);

std::filesystem::path store_path(const Invocation& invocation, const Context& context);
// Whether there is a store. Does not create one. Throws UserError if that cannot be told.
bool store_exists(const std::filesystem::path& path);
// Throws UserError (not_found) if there is no store. Reports on stderr what it had to repair.
std::unique_ptr<store::Store> open_store(const Invocation& invocation, Context& context);

std::unique_ptr<store::Store> open_store_at(const std::filesystem::path& path, Context& context);

std::string bytes_text(std::uint64_t bytes);       // "31 MiB"
std::string live_text(const nlohmann::json& live); // "v4", "v3:10%,v4:90%", "none"
bool on_terminal();                                // somebody can be asked
// Asks on the terminal. Returns true with --yes. Throws UserError (usage) if there is no terminal to ask on.
bool agreed(const Invocation& invocation, Context& context, const std::string& question);
// Prints on stderr what a version that did not become healthy printed.
void print_output(Context& context, const std::string& said);
void print_json(Context& context, const nlohmann::json& object);
// The result, of a command with events.
void print_result(Context& context, const nlohmann::json& object);

} // namespace platform
} // namespace kvmserver::cli
