#include "src/cli/options/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/cli/help/nearest.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

constexpr OptionSpec kCommon[] = {
    {.name = "help", .letter = 'h', .group = "Help", .help = "this help"},
    {.name = "help-all", .group = "Help", .help = "also the options that are seldom needed"},
    {.name = "version", .group = "Help", .help = "print the version"},
};

[[noreturn]] void usage(const std::string& message) { throw tinykvm::UserError(tinykvm::ExitCode::usage, message); }

class Splitter {
public:
    Splitter(std::span<const Command> commands, const std::vector<std::string>& words)
        : commands_(commands), words_(words) {}

    ParsedArguments split() {
        while (at_ < words_.size()) {
            const std::string& word = words_[at_++];
            if (word == "--") {
                if (!result_.command)
                    usage("'--' before a command; see kvmserver --help");
                rest_is_operands();
            } else if (word.starts_with("--")) {
                long_option(word);
            } else if (word.size() > 1 && word[0] == '-') {
                short_options(word);
            } else {
                operand(word);
            }
        }
        check_ownership();
        return std::move(result_);
    }

private:
    // Before the command is known an option may be any command's.
    template <typename Key>
    const OptionSpec* find(Key key) const {
        if (result_.command) // first: `delete` has a --version of its own
            if (const auto* spec = find_option(result_.command->options, key))
                return spec;
        if (const auto* spec = find_option(kCommon, key))
            return spec;
        for (const Command& command : commands_)
            if (const auto* spec = find_option(command.options, key))
                return spec;
        return nullptr;
    }

    void long_option(const std::string& word) {
        const auto equals = word.find('=');
        const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
        const OptionSpec* spec = find(std::string_view(name));
        if (!spec)
            unknown_option("--" + name, name);
        if (equals != std::string::npos)
            add_value(*spec, word.substr(equals + 1));
        else if (spec->takes_value())
            add_value(*spec, next_word(*spec));
        else
            add_bare(*spec);
    }

    // "-vt4" is "-v -t 4".
    void short_options(const std::string& word) {
        if (word.size() > 2 && find(std::string_view(word).substr(1)))
            usage(fmt::format("{} has one dash; did you mean -{}?", word, word));
        for (std::size_t i = 1; i < word.size(); ++i) {
            const OptionSpec* spec = find(word[i]);
            if (!spec)
                unknown_option(word.size() == 2 ? word : fmt::format("-{} in '{}'", word[i], word), word.substr(1));
            if (!spec->takes_value()) {
                add_bare(*spec);
                continue;
            }
            std::string rest = word.substr(i + 1);
            if (rest.starts_with('='))
                add_value(*spec, rest.substr(1));
            else
                add_value(*spec, rest.empty() ? next_word(*spec) : rest);
            return;
        }
    }

    void operand(const std::string& word) {
        if (!result_.command) {
            result_.command = find_command(word);
            return;
        }
        if (result_.command->operands == Operands::none)
            usage(fmt::format("{} takes no '{}'", result_.command->name, word));
        if (result_.command->operands == Operands::guest) {
            --at_;
            rest_is_operands();
            return;
        }
        add_operand(word);
    }

    void rest_is_operands() {
        while (at_ < words_.size())
            add_operand(words_[at_++]);
    }

    void add_operand(const std::string& word) {
        if (result_.operands.empty())
            result_.bare_before = last_bare_;
        result_.operands.push_back(word);
    }

    const std::string& next_word(const OptionSpec& spec) {
        if (at_ == words_.size())
            usage(fmt::format("--{} needs a value: --{} {}", spec.name, spec.name, spec.value));
        return words_[at_++];
    }

    void add_bare(const OptionSpec& spec) {
        seen_.push_back(&spec);
        if (spec.kind == Kind::optional_list) {
            last_bare_ = spec.name;
            result_.options.push_back(fmt::format("--{}={}", spec.name, spec.bare));
        } else {
            last_bare_.clear();
            result_.options.push_back(fmt::format("--{}", spec.name));
        }
    }

    void add_value(const OptionSpec& spec, const std::string& value) {
        // CLI11 takes the next word for an empty value, and "{}" for no value at all.
        if (value.empty())
            usage(fmt::format("--{}: the value is empty", spec.name));
        if (!spec.takes_value() && value == "{}")
            usage(fmt::format("--{}: '{{}}' is no value", spec.name));
        seen_.push_back(&spec);
        last_bare_.clear();
        result_.options.push_back(fmt::format("--{}={}", spec.name, value));
    }

    const Command* find_command(const std::string& name) const {
        std::vector<std::string> known;
        for (const Command& command : commands_) {
            if (command.name == name)
                return &command;
            known.push_back(command.name);
        }
        std::string hint = did_you_mean(name, known);
        if (hint.empty())
            hint = name.find('/') != name.npos ? fmt::format("; did you mean kvmserver run {}?", name)
                                               : std::string("; see kvmserver --help");
        usage(fmt::format("unknown command '{}'{}", name, hint));
    }

    [[noreturn]] void unknown_option(const std::string& shown, const std::string& name) const {
        std::string hint = name.size() > 1 ? did_you_mean(name, option_names(commands_, result_.command), "--") : "";
        if (hint.empty())
            hint = fmt::format("; see kvmserver {}--help", result_.command ? result_.command->name + " " : "");
        usage(fmt::format("unknown option {}{}", shown, hint));
    }

    void check_ownership() const {
        const std::string_view runs = result_.command ? std::string_view(result_.command->name) : "run";
        const auto owner = std::ranges::find(commands_, runs, &Command::name);
        for (const OptionSpec* spec : seen_) {
            if (find_option(kCommon, spec->name) ||
                (owner != commands_.end() && find_option(owner->options, spec->name)))
                continue;
            std::string owners;
            for (const Command& command : commands_)
                if (find_option(command.options, spec->name))
                    owners += (owners.empty() ? "" : ", ") + command.name;
            usage(fmt::format("--{} is an option of {}, not of {}", spec->name, owners, runs));
        }
    }

    std::span<const Command> commands_;
    const std::vector<std::string>& words_;
    std::size_t at_ = 0;
    ParsedArguments result_;
    std::vector<const OptionSpec*> seen_;
    std::string last_bare_;
};

} // namespace

std::span<const OptionSpec> common_options() { return kCommon; }

ParsedArguments parse_arguments(std::span<const Command> commands, const std::vector<std::string>& words) {
    return Splitter(commands, words).split();
}

std::vector<std::string> option_names(std::span<const Command> commands, const Command* command) {
    std::vector<std::string> names;
    const auto add = [&](std::span<const OptionSpec> options) {
        for (const OptionSpec& spec : options)
            if (!spec.group.empty() && std::ranges::find(names, spec.name) == names.end())
                names.emplace_back(spec.name);
    };
    add(kCommon);
    for (const Command& each : commands)
        if (!command || command == &each)
            add(each.options);
    return names;
}

} // namespace kvmserver::cli
