#include "src/cli/options/config_file.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/cli/events/json_events.hpp"
#include "src/cli/help/nearest.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::cli {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

std::string type_of(const toml::node& node) {
    switch (node.type()) {
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "an array";
    case toml::node_type::string: return "a string";
    case toml::node_type::integer: return "an integer";
    case toml::node_type::floating_point: return "a float";
    case toml::node_type::boolean: return "a boolean";
    default: return "a date or time";
    }
}

std::string_view wanted_type(Kind kind) {
    switch (kind) {
    case Kind::flag: return "true or false";
    case Kind::optional_list: return "true, false, a string or an array of strings";
    case Kind::repeated: return "a string or an array of strings";
    case Kind::text: return "a string";
    case Kind::count:
    case Kind::mib: return "an integer";
    case Kind::count_or_word: return "an integer or a string";
    case Kind::seconds: return "a number";
    }
    return "";
}

class Reader {
public:
    Reader(const std::string& shown, std::span<const OptionSpec> options, Section section)
        : shown_(shown), options_(options), section_(section) {}

    ConfigFile read(const toml::table& top, bool with_run) {
        for (const auto& [key, node] : top) {
            const std::string name(key.str());
            const OptionSpec* spec = find_option(options_, std::string_view(name));
            if (spec && spec->in_file)
                file_.settings[name] = setting(*spec, node, where(key.source()));
            else if (name == "run") {
                if (with_run)
                    file_.run = run_section(node, where(key.source()));
            } else if (name == "function") {
                if (!node.is_table() && !node.is_array_of_tables())
                    wrong_type(where(key.source()), name, "a table", node);
                if (with_run && node.is_table()) {
                    function_env(*node.as_table());
                    before_snapshot(*node.as_table());
                }
                if (node.is_table())
                    function_storage(*node.as_table());
            } else if (name == "snapshot") {
                section_options(name, node, kSnapshot, section_ == Section::snapshot);
            } else if (name == "snaprun") {
                section_options(name, node, kSnaprun, section_ == Section::snaprun);
            } else if (name == "storage") {
                file_.storage = storage_section(node, where(key.source()), "storage");
            } else {
                unknown(name, where(key.source()), top_level_names());
            }
        }
        file_.settings = merge(std::move(file_.settings), of_section_);
        return std::move(file_);
    }

private:
    std::string where(const toml::source_region& source) const {
        return fmt::format("{}:{}: ", shown_, source.begin.line);
    }

    [[noreturn]] static void wrong_type(const std::string& where, std::string_view name, std::string_view wanted,
                                        const toml::node& node) {
        throw UserError(ExitCode::usage, fmt::format("{}{} must be {}, not {}", where, name, wanted, type_of(node)));
    }

    static std::string string_value(const toml::value<std::string>& value, const std::string& where,
                                    std::string_view name) {
        if (value->find('\0') != std::string::npos)
            throw UserError(ExitCode::usage, fmt::format("{}{} holds a NUL character", where, name));
        return value.get();
    }

    static std::vector<std::string> strings(const toml::array& array, const std::string& where, std::string_view name,
                                            std::string_view wanted) {
        std::vector<std::string> values;
        for (const toml::node& item : array) {
            if (!item.is_string())
                throw UserError(ExitCode::usage,
                                fmt::format("{}{} must be {}; {} is in the array", where, name, wanted, type_of(item)));
            values.push_back(string_value(*item.as_string(), where, name));
        }
        return values;
    }

    static Setting setting(const OptionSpec& spec, const toml::node& node, const std::string& where) {
        const auto is = [&](auto... kinds) { return ((spec.kind == kinds) || ...); };
        const auto found = [&](std::vector<std::string> values) { return Setting{std::move(values), where}; };
        if (const auto* flag = node.as_boolean(); flag && is(Kind::flag))
            return found({flag->get() ? "true" : "false"});
        else if (flag && is(Kind::optional_list))
            return found(flag->get() ? std::vector{std::string(spec.bare)} : std::vector<std::string>());
        if (node.is_integer() && is(Kind::count, Kind::count_or_word, Kind::mib, Kind::seconds))
            return found({fmt::to_string(node.as_integer()->get())});
        if (node.is_floating_point() && is(Kind::seconds))
            return found({fmt::to_string(node.as_floating_point()->get())});
        if (node.is_string() && is(Kind::text, Kind::count_or_word, Kind::repeated))
            return found({string_value(*node.as_string(), where, spec.name)});
        if (node.is_string() && is(Kind::optional_list))
            return found(split_commas(string_value(*node.as_string(), where, spec.name)));
        if (node.is_array() && spec.is_list())
            return found(strings(*node.as_array(), where, spec.name, wanted_type(spec.kind)));
        wrong_type(where, spec.name, wanted_type(spec.kind), node);
    }

    // `command`: whose options they are; `wanted`: whether they replace those at top level.
    void section_options(const std::string& section, const toml::node& node, unsigned command, bool wanted) {
        if (!node.is_table())
            wrong_type(where(node.source()), section, "a table", node);
        std::vector<std::string> names;
        for (const OptionSpec& spec : options_)
            if (spec.in_file && !spec.group.empty() && (spec.offered & command) != 0)
                names.emplace_back(spec.name);
        for (const auto& [key, value] : *node.as_table()) {
            const std::string name(key.str()), at = where(key.source());
            const OptionSpec* const spec = find_option(options_, std::string_view(name));
            if (!spec || !spec->in_file || (spec->offered & command) == 0) {
                file_.unknown.push_back(
                    {fmt::format("{}unknown key '{}.{}'", at, section, name), did_you_mean(name, names)});
                continue;
            }
            Setting option = setting(*spec, value, at + section + ".");
            if (wanted)
                of_section_[name] = std::move(option);
        }
    }

    // `section`: its name.
    StorageSection storage_section(const toml::node& node, const std::string& at, const std::string& section) {
        if (!node.is_table())
            wrong_type(at, section, "a table", node);
        StorageSection storage;
        storage.where = at;
        for (const auto& [key, value] : *node.as_table()) {
            const std::string name(key.str()), line = where(key.source());
            const OptionSpec* const spec = find_option(options_, std::string_view(name));
            if (name == "program" || name == "args") {
                run_key(storage.run, name, value, line, section + ".");
            } else if (name == "1-to-1") {
                if (!value.is_boolean())
                    wrong_type(line, section + ".1-to-1", "true or false", value);
                storage.one_to_one = value.as_boolean()->get();
            } else if (spec && spec->in_file) {
                storage.settings[name] = setting(*spec, value, line + section + ".");
            } else {
                file_.unknown.push_back({fmt::format("{}unknown key '{}.{}'", line, section, name),
                                         did_you_mean(name, {"program", "args", "1-to-1"})});
            }
        }
        if (storage.run.program.empty())
            throw UserError(ExitCode::usage, fmt::format("{}[{}] program is missing", at, section));
        return storage;
    }

    void run_key(RunSection& run, const std::string& name, const toml::node& value, const std::string& line,
                 const std::string& section) {
        if (name == "program") {
            if (!value.is_string())
                wrong_type(line, section + "program", "a string", value);
            run.program = string_value(*value.as_string(), line, section + "program");
        } else {
            if (!value.is_array())
                wrong_type(line, section + "args", "an array of strings", value);
            run.args = strings(*value.as_array(), line, section + "args", "an array of strings");
        }
    }

    RunSection run_section(const toml::node& node, const std::string& at) {
        if (!node.is_table())
            wrong_type(at, "run", "a table", node);
        RunSection run;
        for (const auto& [key, value] : *node.as_table()) {
            const std::string line = where(key.source());
            if (key.str() == "program" || key.str() == "args") {
                run_key(run, std::string(key.str()), value, line, "run.");
            } else {
                unknown(std::string(key.str()), line, {"program", "args"}, "run.");
            }
        }
        return run;
    }

    // What else is in it concerns `deploy`, which looks at all of it.
    void function_storage(const toml::table& function) {
        const toml::table* const given = function["storage"].as_table();
        if (!given || !given->contains("program"))
            return;
        toml::table machine = *given;
        for (const char* const key : {"function", "suspend", "concurrency", "drain", "1-to-1"})
            machine.erase(key);
        const std::size_t unknown = file_.unknown.size();
        file_.function_storage = storage_section(machine, where(given->source()), "function.storage");
        file_.unknown.resize(unknown); // `deploy` tells them
    }

    void function_env(const toml::table& function) {
        const toml::node* const env = function.get("env");
        if (!env)
            return;
        if (!env->is_table())
            wrong_type(where(env->source()), "function.env", "a table", *env);
        for (const auto& [key, value] : *env->as_table()) {
            const std::string name = fmt::format("function.env.{}", key.str());
            if (key.str().empty() || key.str().find_first_of(std::string_view("=\0", 2)) != key.str().npos)
                throw UserError(ExitCode::usage, where(key.source()) + name + " is no name of a variable");
            if (!value.is_string())
                wrong_type(where(key.source()), name, "a string", value);
            file_.function_env.push_back(
                fmt::format("{}={}", key.str(), string_value(*value.as_string(), where(key.source()), name)));
        }
    }

    void before_snapshot(const toml::table& function) {
        const toml::table* const hooks = function["hooks"].as_table();
        const toml::node* const path = hooks ? hooks->get("before-snapshot") : nullptr;
        if (!path)
            return;
        if (!path->is_string())
            wrong_type(where(path->source()), "function.hooks.before-snapshot", "a string", *path);
        const std::string at = where(path->source());
        file_.before_snapshot =
            Setting{{string_value(*path->as_string(), at, "function.hooks.before-snapshot")}, at + "function.hooks."};
    }

    void unknown(const std::string& name, const std::string& at, const std::vector<std::string>& known,
                 std::string_view prefix = "") {
        const OptionSpec* spec = find_option(options_, std::string_view(name));
        if (spec && prefix.empty())
            file_.unknown.push_back({fmt::format("{}'{}' is for the command line only", at, name), ""});
        else
            file_.unknown.push_back({fmt::format("{}unknown key '{}{}'", at, prefix, name),
                                     prefix.empty() ? did_you_mean(name, known) : hint_in_section(name, known)});
    }

    std::vector<std::string> top_level_names() const {
        std::vector<std::string> names{"run", "function", "snapshot", "snaprun", "storage"};
        for (const OptionSpec& spec : options_)
            if (spec.in_file && !spec.group.empty())
                names.emplace_back(spec.name);
        return names;
    }

    const std::string& shown_;
    std::span<const OptionSpec> options_;
    const Section section_;
    Settings of_section_;
    ConfigFile file_;
};

} // namespace

void report_unknown(const std::vector<UnknownKey>& unknown, bool refused, const char* why, Context& context) {
    if (refused && !unknown.empty())
        throw UserError(ExitCode::usage, fmt::format("{}{} ({})", unknown.front().what, unknown.front().hint, why));
    for (const UnknownKey& key : unknown)
        warn(context, fmt::format("{}; ignored{}", key.what, key.hint));
}

std::string hint_in_section(const std::string& name, const std::vector<std::string>& known) {
    const OptionSpec* const option = find_option(machine_options(), std::string_view(name));
    return option && option->in_file ? "; options stand first, above the sections" : did_you_mean(name, known);
}

ConfigFile parse_config(const std::string& text, const std::string& shown, std::span<const OptionSpec> options,
                        bool with_run, Section section) {
    try {
        const toml::table top = toml::parse(text);
        return Reader(shown, options, section).read(top, with_run);
    } catch (const toml::parse_error& error) {
        throw UserError(ExitCode::usage,
                        fmt::format("{}:{}: {}", shown, error.source().begin.line, std::string(error.description())));
    }
}

ConfigFile read_config(const std::string& path, std::span<const OptionSpec> options, bool with_run, Section section) {
    const auto fail = [&](int error) {
        throw UserError(error == ENOENT || error == ENOTDIR ? ExitCode::not_found
                        : error == EACCES                   ? ExitCode::not_permitted
                                                            : ExitCode::failure,
                        fmt::format("options file '{}': {}", path, std::strerror(error)));
    };
    constexpr std::size_t kLargest = 1 << 20; // far beyond any that a person writes
    const tinykvm::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0)
        fail(errno);
    std::string text;
    char buffer[4096];
    ssize_t count;
    while ((count = ::read(fd.get(), buffer, sizeof buffer)) > 0) {
        text.append(buffer, static_cast<std::size_t>(count));
        if (text.size() > kLargest)
            fail(EFBIG);
    }
    if (count < 0)
        fail(errno);
    return parse_config(text, path, options, with_run, section);
}

} // namespace kvmserver::cli
