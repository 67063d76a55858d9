#include "src/cli/platform/manifest.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

#include "src/cli/events/json_events.hpp"
#include "src/cli/options/config_file.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/storage_function.hpp"
#include "src/common/environment.hpp"
#include "src/daemon/function_settings.hpp"
#include "src/store/errors.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/elf/stack.hpp"

namespace kvmserver::cli::platform {
namespace {

// Until the name of the function is known.
constexpr const char* kStorageToBeNamed = "to-be-named-storage";

using tinykvm::ExitCode;
using tinykvm::UserError;

// Uses nlohmann's dump, which escapes what toml++'s formatter might not.
std::string to_json(const toml::table& top) {
    std::ostringstream text;
    text << toml::json_formatter{top};
    return nlohmann::json::parse(text.str()).dump();
}

class Reader {
public:
    explicit Reader(Manifest& manifest) : manifest_(manifest) {}

    void read(const toml::table& top) {
        const toml::node* node = top.get("function");
        if (node && !node->is_table())
            fail(*node, "function must be a table");
        if (!node)
            return;
        top_ = &top;
        read_function(*node->as_table());
        read_protocol(top, *node->as_table());
    }

private:
    void read_function(const toml::table& function) {
        warn_unknown(function, "function",
                     {"name", "protocol", "listen", "drain", "routes", "secrets", "ephemeral", "sticky", "env", "scale",
                      "hooks", "build", "versions", "storage"});
        const toml::node* const ephemeral = function.get("ephemeral");
        if (ephemeral && !ephemeral->is_boolean())
            fail(*ephemeral, "function.ephemeral must be true or false");
        manifest_.kept = ephemeral && !ephemeral->as_boolean()->get();
        string(function, "function.name", manifest_.name);
        if (const toml::node* node = function.get("routes"))
            routes(*node);
        if (const toml::table* env = table(function, "function", "env"))
            for (const auto& [key, value] : *env)
                variable(*env, std::string(key.str()), value);
        if (const toml::table* env = table(function, "function", "env"))
            warn_of_length(*env);
        if (const toml::node* secrets = function.get("secrets"))
            secret_names(*secrets);
        if (const toml::table* hooks = table(function, "function", "hooks")) {
            warn_unknown(*hooks, "function.hooks", {"after-restore", "before-snapshot", "health"});
            path(*hooks, "function.hooks.after-restore", after_restore_); // the daemon reads it from the manifest
            path(*hooks, "function.hooks.before-snapshot", manifest_.before_snapshot);
            path(*hooks, "function.hooks.health", manifest_.health);
        }
        if (const toml::table* build = table(function, "function", "build")) {
            warn_unknown(*build, "function.build", {"command", "watch"});
            string(*build, "function.build.command", manifest_.build_command);
            if (const toml::node* watch = build->get("watch"))
                manifest_.watch = strings(*watch, "function.build.watch");
        }
        if (const toml::table* scale = table(function, "function", "scale")) {
            warn_unknown(*scale, "function.scale",
                         {"min", "max", "idle", "rest", "queue", "queue-timeout", "concurrency", "machines", "suspend",
                          "linger"});
            as_the_daemon(*scale, "scale");
            if (const toml::node* machines = scale->get("machines"))
                manifest_.kept_machines = static_cast<unsigned>(machines->value_or<std::int64_t>(1));
        }
        if (const toml::table* storage = table(function, "function", "storage")) {
            const bool with_program = storage->contains("program");
            manifest_.has_storage = true;
            warn_unknown(*storage, "function.storage", storage_keys(with_program));
            as_the_daemon(*storage, "storage");
            if (with_program)
                storage_program(*storage);
        }
        if (const toml::table* versions = table(function, "function", "versions")) {
            warn_unknown(*versions, "function.versions", {"keep"});
            as_the_daemon(*versions, "versions");
        }
        warn_of_copies(function);
    }

    void storage_program(const toml::table& storage) {
        manifest_.storage.emplace();
        string(storage, "function.storage.function", manifest_.storage->function);
        if (manifest_.storage->function == kStorageToBeNamed)
            manifest_.storage->function.clear();
        manifest_.storage->manifest = storage_manifest(storage, manifest_.folder);
        manifest_.storage->cwd = storage["cwd"].value<std::string>();
        try {
            daemon::function_settings(to_json(toml::parse(manifest_.storage->manifest)));
        } catch (const UserError& error) {
            std::string_view what = error.what(); // "function.scale.suspend must ..."
            for (const std::string_view prefix : {"function.", "scale."})
                if (what.starts_with(prefix))
                    what.remove_prefix(prefix.size());
            const toml::node* const at = storage.get(what.substr(0, what.find(' ')));
            fail(at ? *at : storage, fmt::format("function.storage.{}", what));
        }
    }

    // Reads all that the daemon does, once the rest has been read.
    void read_protocol(const toml::table& top, const toml::table& function) {
        refuse_as_the_daemon(function, "function.", to_json(top));
        const toml::node* protocol = function.get("protocol");
        if (protocol)
            manifest_.protocol = protocol->value<std::string>().value_or("");
        if (const toml::node* warmup = top.get("warmup");
            warmup && !manifest_.is_http() && warmup->value<std::int64_t>() != std::int64_t{0})
            fail(*warmup, fmt::format("warmup sends HTTP requests, which a function with protocol = \"{}\" does not "
                                      "answer; leave it out",
                                      manifest_.protocol));
        const toml::table* const own = top["snapshot"].as_table();
        if (const toml::node* hook =
                own && own->get("before-snapshot") ? own->get("before-snapshot") : top.get("before-snapshot");
            hook && !manifest_.before_snapshot.empty())
            fail(*hook, "before-snapshot is given twice: here, and in [function.hooks]; remove one");
        for (const char* const key : {"warmup-path", "warmup-requests"})
            if (const toml::node* node = top.get(key); node && !manifest_.is_http())
                fail(*node, fmt::format("{} is about HTTP requests, which a function with protocol = \"{}\" does not "
                                        "answer; leave it out",
                                        key, manifest_.protocol));
    }

    void warn_of_length(const toml::table& env) {
        for (const auto& [key, value] : env)
            if (const auto at = manifest_.env.find(std::string(key.str()));
                at->first.size() + 1 + at->second.size() >= tinykvm::kLateEnvBytes)
                manifest_.warnings.push_back(fmt::format("{}function.env.{} is too long for the program's environment "
                                                         "({} bytes with its name): only an after-restore hook gets it",
                                                         where(value), at->first, tinykvm::kLateEnvBytes - 1));
    }

    // Warns for runtimes that copy their environment at start, which is before a secret is given to them.
    // [function.env] is there by then; `env set` warns itself.
    void warn_of_copies(const toml::table& function) {
        const std::string program = std::filesystem::path(manifest_.program).filename().string();
        if (!after_restore_.empty() || !copies_environment(program))
            return;
        if (const toml::node* node = function.get("secrets"))
            manifest_.warnings.push_back(
                fmt::format("{}{} copies its environment when it starts, before function.secrets have values: it needs "
                            "[function.hooks] after-restore (docs/howto/secrets.md)",
                            where(*node), program));
    }

    std::string where(const toml::node& node) const {
        return fmt::format("{}:{}: ", manifest_.file.string(), node.source().begin.line);
    }

    [[noreturn]] void fail(const toml::node& node, const std::string& what) const {
        throw UserError(ExitCode::usage, where(node) + what);
    }

    // `name` includes the names of its tables.
    void string(const toml::table& from, const std::string& name, std::string& target) const {
        const toml::node* node = from.get(name.substr(name.rfind('.') + 1));
        if (!node)
            return;
        if (!node->is_string())
            fail(*node, name + " must be a string");
        target = node->as_string()->get();
        if (target.find('\0') != target.npos)
            fail(*node, name + " holds a NUL character");
    }

    void secret_names(const toml::node& node) {
        manifest_.secrets = strings(node, "function.secrets");
        for (const std::string& name : manifest_.secrets)
            try {
                store::check_variable_name(name);
            } catch (const UserError& error) {
                fail(node, std::string("function.secrets: ") + error.what());
            }
    }

    void variable(const toml::table& env, const std::string& name, const toml::node& node) {
        try {
            store::check_variable_name(name); // so it contains no dot
            string(env, "function.env." + name, manifest_.env[name]);
            store::check_variable_value(name, manifest_.env[name]);
        } catch (const store::BadValue& error) {
            fail(node, error.what());
        }
    }

    std::vector<std::string> strings(const toml::node& node, const char* name) const {
        std::vector<std::string> values;
        const toml::array* array = node.as_array();
        if (!array)
            fail(node, fmt::format("{} must be an array of strings", name));
        for (const toml::node& item : *array) {
            if (!item.is_string())
                fail(item, fmt::format("{} must be an array of strings", name));
            values.push_back(item.as_string()->get());
        }
        return values;
    }

    void path(const toml::table& from, const std::string& name, std::string& target) const {
        string(from, name, target);
        if (target.empty())
            return;
        const toml::node& node = *from.get(name.substr(name.rfind('.') + 1));
        if (target[0] != '/')
            fail(node, name + " must begin with /");
        for (const char c : target)
            if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f)
                fail(node, name + " holds a space or control character");
    }

    // Reads the table [function.NAME] as the daemon does, to refuse here what the daemon could not use.
    void as_the_daemon(const toml::table& from, const char* name) const {
        refuse_as_the_daemon(
            from, fmt::format("function.{}.", name),
            fmt::format(R"({{"function":{{"ephemeral":{},"{}":{}}}}})", !manifest_.kept, name, to_json(from)));
    }

    // `prefix`: the names of the table `from` and those around it.
    void refuse_as_the_daemon(const toml::table& from, const std::string& prefix, const std::string& manifest) const {
        try {
            daemon::function_settings(manifest);
        } catch (const UserError& error) {
            const std::string_view what = error.what();
            const toml::node* node = &from;
            for (const auto& [key, value] : from)
                if (what.starts_with(fmt::format("{}{} ", prefix, key.str())))
                    node = &value;
            if (const toml::node* at_top = top_ ? top_->get(what.substr(0, what.find(' '))) : nullptr)
                node = at_top;
            fail(*node, error.what());
        }
    }

    const toml::table* table(const toml::table& from, const std::string& prefix, const char* name) const {
        const toml::node* node = from.get(name);
        if (node && !node->is_table())
            fail(*node, fmt::format("{}.{} must be a table", prefix, name));
        return node ? node->as_table() : nullptr;
    }

    void routes(const toml::node& node) {
        manifest_.routes.emplace();
        try {
            for (const std::string& text : strings(node, "function.routes"))
                manifest_.routes->push_back(store::Route::parse(text));
        } catch (const store::BadValue& error) {
            fail(node, error.what());
        }
    }

    void warn_unknown(const toml::table& from, const std::string& prefix, const std::vector<std::string>& known) {
        for (const auto& [key, value] : from)
            if (const std::string name(key.str()); std::ranges::find(known, name) == known.end())
                manifest_.unknown.push_back(
                    {fmt::format("{}unknown key '{}.{}'", where(value), prefix, name), hint_in_section(name, known)});
    }

    Manifest& manifest_;
    const toml::table* top_ = nullptr; // the whole file
    std::string after_restore_;
};

} // namespace

Manifest read_manifest(const std::filesystem::path& file) {
    Manifest manifest;
    manifest.file = file;
    manifest.folder = file.parent_path();
    manifest.shown = file.string();
    // First read it as the other commands do, for the same messages if the file cannot be read or parsed.
    const ConfigFile config = read_config(file.string(), machine_options(), true);
    manifest.unknown = config.unknown;
    if (config.storage)
        throw UserError(ExitCode::usage, config.storage->where +
                                             "[storage] is for run, snapshot and snaprun; a function "
                                             "has no storage program: remove it");
    if (!config.run || config.run->program.empty())
        throw UserError(ExitCode::usage,
                        fmt::format("{}: [run] program is missing: what is to be deployed?", file.string()));
    manifest.program = config.run->program;
    manifest.args = config.run->args;
    try {
        toml::table top = toml::parse_file(file.string());
        if (toml::table* storage = top["function"]["storage"].as_table(); storage && storage->contains("program"))
            storage->insert("function", kStorageToBeNamed);
        Reader(manifest).read(top);
        manifest.json = to_json(top);
    } catch (const toml::parse_error& error) { // it changed while it was read
        throw UserError(ExitCode::usage, fmt::format("{}: {}", file.string(), std::string(error.description())));
    } catch (const nlohmann::json::exception&) { // JSON has no inf and nan
        throw UserError(ExitCode::usage, fmt::format("{}: a number is not finite", file.string()));
    }
    return manifest;
}

void report_warnings(const Manifest& manifest, const Invocation& invocation, Context& context) {
    report_unknown(manifest.unknown, flag(invocation, kStrict.name), "--strict", context);
    for (const std::string& warning : manifest.warnings)
        warn(context, warning);
}

} // namespace kvmserver::cli::platform
