#include "src/cli/options/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/cli/app.hpp"
#include "src/cli/help/nearest.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

constexpr OptionSpec kCommon[] = {
    {.name = "help", .letter = 'h', .group = "Help", .help = "this help"},
    {.name = "help-all", .group = "Help", .help = "also the options that are seldom needed"},
    {.name = "version", .group = "Help", .help = "print the version"},
};

constexpr std::string_view kStorageMark = "++", kStorageCommand = "storage";
constexpr char kMark = '\0'; // no word of a command line holds it

// What may stand before the command: the options of all. Of two with one name or letter the first counts.
Command any_of(std::span<const Command> commands) {
    Command any;
    any.options.assign(std::begin(kCommon), std::end(kCommon));
    for (const Command& command : commands)
        for (OptionSpec spec : command.options) {
            if (find_option(any.options, spec.name))
                continue;
            if (find_option(any.options, spec.letter))
                spec.letter = 0;
            any.options.push_back(spec);
        }
    return any;
}

class ArgumentParser {
public:
    ArgumentParser(std::span<const Command> commands, const std::vector<std::string>& words)
        : commands_(commands), words_(words), any_(any_of(commands)) {
        for (auto word = words.rbegin(); word != words.rend(); ++word) // as App::parse wants them
            rest_.push_back(marked(*word));
    }

    ParsedArguments parse() {
        const Command* command = take_command();
        if (!command || !result_.asked.empty())
            return std::move(result_);
        const auto app = make_app(*command, true);
        for (const OptionSpec& spec : command->options)
            app->get_option("--" + std::string(spec.name))
                ->trigger_on_parse()
                ->each([this, &spec](const std::string& given) { set(spec, given); });
        for (take_options(*app, rest_); !rest_.empty(); take_options(*app, rest_))
            take_operands(*command);
        return std::move(result_);
    }

private:
    // CLI11 2.1.2 by itself reads "--x= y" as "--x=y", "--x={}" as "--x", "-e-version" as "-e --version", the first
    // letter of "-ephemeral" as -e, and "-x=1" as "-x =1". The mark sets these apart.
    std::string marked(std::string word) const {
        std::size_t at = std::string::npos;
        if (word.starts_with("--"))
            at = word.find('=') == word.npos ? word.npos : word.find('=') + 1;
        else if (word.starts_with('='))
            at = 0;
        else if (word.starts_with('-'))
            at = find_option(any_.options, std::string_view(word).substr(1)) ? 1 : word.find('-', 2);
        return at == word.npos ? word : word.insert(at, 1, kMark);
    }

    static std::string unmarked(std::string word) {
        std::erase(word, kMark);
        return word;
    }

    // Takes the command from the words; the options before it stay. Without one it is `run`.
    const Command* take_command() {
        std::vector<std::string> rest = rest_;
        take_options(*make_app(any_, true), rest);
        if (rest.empty()) {
            const auto run = std::ranges::find(commands_, "run", &Command::name);
            return run == commands_.end() ? nullptr : &*run;
        }
        if (rest.back() == "--")
            usage_error("'--' before a command; see kvmserver --help");
        result_.command = find_command(unmarked(rest.back()));
        rest_.erase(rest_.begin() + static_cast<std::ptrdiff_t>(rest.size()) - 1);
        return result_.command;
    }

    // Leaves of the words those from the first on that is no option.
    void take_options(CLI::App& app, std::vector<std::string>& words) {
        try {
            app.prefix_command()->parse(words);
        } catch (const CLI::ArgumentMismatch& error) { // "--x: 1 required N missing"
            const std::string text = error.what(), name = text.substr(0, text.find(':'));
            usage_error(fmt::format("{} needs a value: {} {}", name, name, app.get_option(name)->get_type_name()));
        }
        for (const OptionSpec& spec : kCommon) {
            const CLI::Option* option = app.get_option("--" + std::string(spec.name)); // of `delete`: another --version
            if (option->get_items_expected_max() == 0 && std::ranges::count(option->results(), "true") > 0)
                result_.asked.insert(std::string(spec.name));
        }
        if (!words.empty() && words.back().size() > 1 && words.back().front() == '-' && words.back() != "--")
            refuse_option(app, words.back());
    }

    void set(const OptionSpec& spec, const std::string& given) {
        const bool bare = !spec.takes_value() && given == "true";                       // a written value is marked
        std::string value = unmarked(given.starts_with('=') ? given.substr(1) : given); // of "-t=4"
        if (value.empty())
            usage_error(fmt::format("--{}: the value is empty", spec.name));
        if (!spec.takes_value() && value == "{}") // of a template that was not filled in
            usage_error(fmt::format("--{}: '{{}}' is no value", spec.name));
        if (bare && !spec.bare.empty())
            value = spec.bare;
        if (result_.operands.empty())
            result_.bare_before = bare && spec.kind == Kind::optional_list ? spec.name : "";
        std::vector<std::string>& values = result_.settings[std::string(spec.name)].values;
        if (!spec.is_list())
            values.clear(); // the last one counts
        std::ranges::copy(spec.kind == Kind::optional_list ? split_commas(value) : std::vector{value},
                          std::back_inserter(values));
    }

    // Takes the words after the first "++" that "storage" follows, if it is among the operands. Any other "++" is an
    // argument of the program.
    void take_storage(bool all) {
        for (std::size_t at = rest_.size(); at-- > (all ? 0 : rest_.size() - 1);) {
            if (rest_[at] != kStorageMark || at == 0 || rest_[at - 1] != kStorageCommand)
                continue;
            result_.storage.emplace();
            for (std::size_t word = at; word-- > 0;)
                result_.storage->push_back(unmarked(rest_[word]));
            rest_.erase(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(at) + 1);
            return;
        }
    }

    void take_operands(const Command& command) {
        bool all = command.operands == Operands::guest;
        if (rest_.back() == "--") { // all that follows is the program's, "++" too
            rest_.pop_back();
            all = true;
        } else if (command.storage) {
            take_storage(all);
        }
        for (std::size_t count = all ? rest_.size() : std::min<std::size_t>(1, rest_.size()); count > 0; --count) {
            result_.operands.push_back(unmarked(rest_.back()));
            rest_.pop_back();
        }
        if (command.operands == Operands::none && !result_.operands.empty())
            usage_error(fmt::format("{} takes no '{}'", command.name, result_.operands.front()));
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
        usage_error(fmt::format("unknown command '{}'{}", name, hint));
    }

    // CLI11 leaves "-x" of "-evx".
    const std::string& whole_word(const std::string& left) const {
        const auto same = std::ranges::find(words_, left);
        return same != words_.end() ? *same : *std::ranges::find_if(words_, [&](const std::string& word) {
            return word.starts_with('-') && !word.starts_with("--") && word.ends_with(left.substr(1));
        });
    }

    [[noreturn]] void refuse_option(const CLI::App& app, const std::string& left) const {
        const bool is_long = left.starts_with("--");
        const std::string word = is_long ? left.substr(0, left.find('=')) : whole_word(unmarked(left));
        const std::string name = word.substr(is_long ? 2 : 1);
        if (left[1] == kMark && find_option(any_.options, std::string_view(name)))
            usage_error(fmt::format("{} has one dash; did you mean -{}?", word, word));
        const char letter = unmarked(left)[1];
        const auto* foreign =
            is_long ? find_option(any_.options, std::string_view(name)) : find_option(any_.options, letter);
        if (foreign)
            refuse_foreign(foreign->name);
        std::vector<std::string> known;
        for (const CLI::Option* option : app.get_options([](const CLI::Option* o) { return !o->get_group().empty(); }))
            known.push_back(option->get_lnames().front());
        std::string hint = name.size() > 1 ? did_you_mean(name, known, "--") : "";
        if (hint.empty())
            hint = fmt::format("; see kvmserver {}--help", result_.command ? result_.command->name + " " : "");
        const bool cluster = !is_long && word.size() > 2;
        usage_error(
            fmt::format("unknown option {}{}", cluster ? fmt::format("-{} in '{}'", letter, word) : word, hint));
    }

    [[noreturn]] void refuse_foreign(std::string_view name) const {
        std::string owners;
        for (const Command& command : commands_)
            if (find_option(command.options, name))
                owners += (owners.empty() ? "" : ", ") + command.name;
        const std::string runs = result_.command ? result_.command->name : "run";
        usage_error(fmt::format("--{} is an option of {}, not of {}", name, owners, runs));
    }

    std::span<const Command> commands_;
    const std::vector<std::string>& words_;
    Command any_;
    std::vector<std::string> rest_; // reversed, marked
    ParsedArguments result_;
};

} // namespace

std::span<const OptionSpec> common_options() { return kCommon; }

ParsedArguments parse_arguments(std::span<const Command> commands, const std::vector<std::string>& words) {
    return ArgumentParser(commands, words).parse();
}

} // namespace kvmserver::cli
