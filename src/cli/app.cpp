#include "src/cli/app.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/cli/help/examples.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

constexpr std::size_t kColumn = 40;

class HelpFormatter : public CLI::Formatter {
public:
    HelpFormatter() { column_width(kColumn); }

    // CLI11 leaves two empty lines between groups.
    std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
        std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
        text = CLI::detail::find_and_replace(std::move(text), "\n\n\n", "\n\n");
        CLI::detail::rtrim(text);
        std::string examples;
        for (const Example& example : examples_of(app->get_name()))
            examples += fmt::format("  {}\n{}", example.line,
                                    example.does.empty() ? "" : fmt::format("      {}\n", example.does));
        return text + (examples.empty() ? "\n" : "\n\nExamples:\n" + examples);
    }
    std::string make_usage(const CLI::App* app, std::string) const override {
        return fmt::format("\nUsage: {}\n", app->get_footer());
    }
    std::string make_footer(const CLI::App*) const override { return {}; }

    std::string make_option(const CLI::Option* option, bool) const override {
        const std::string letter =
            option->get_snames().empty() ? "    " : fmt::format("-{}, ", option->get_snames().front());
        const bool choice = option->get_type_name().find('|') != std::string::npos;
        std::string value = choice ? "NAME" : option->get_type_name();
        if (!value.empty())
            value = option->get_items_expected_max() == 0 ? fmt::format("[={}]", value) : " " + value;
        std::string text = option->get_description();
        if (choice)
            text += ": " + CLI::detail::find_and_replace(option->get_type_name(), "|", ", ");
        if (!option->get_default_str().empty())
            text += fmt::format("{}({})", text.empty() ? "" : " ", option->get_default_str());
        const std::string left = fmt::format("  {}--{}{}", letter, option->get_lnames().front(), value);
        if (text.empty())
            return left + "\n";
        if (left.size() + 1 >= kColumn)
            return fmt::format("{}\n{:{}}{}\n", left, "", kColumn, text);
        return fmt::format("{:<{}}{}\n", left, kColumn, text);
    }
};

void add_option(CLI::App& app, const OptionSpec& spec, bool everything) {
    const std::string names =
        spec.letter ? fmt::format("-{},--{}", spec.letter, spec.name) : fmt::format("--{}", spec.name);
    CLI::Option* option =
        spec.takes_value() ? app.add_option(names, [](const CLI::results_t&) { return true; }) : app.add_flag(names);
    const bool shown = everything || spec.group != kCompatibility;
    option->description(std::string(spec.help))
        ->type_name(std::string(spec.value))
        ->default_str(std::string(spec.fallback))
        ->group(shown ? std::string(spec.group) : std::string())
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

} // namespace

std::unique_ptr<CLI::App> make_app(const Command& command, bool everything) {
    auto app = std::make_unique<CLI::App>(command.summary, command.name);
    app->set_help_flag();
    app->formatter(std::make_shared<HelpFormatter>());
    const std::string options = command.options.empty() ? "" : " [OPTIONS]";
    const std::string operands = operands_of(command);
    app->footer(fmt::format("kvmserver {}{}{}{}", command.name, options, operands.empty() ? "" : " ", operands));
    for (const OptionSpec& spec : command.options)
        add_option(*app, spec, everything);
    for (const OptionSpec& spec : common_options())
        if (!find_option(command.options, spec.name))
            add_option(*app, spec, everything);
    return app;
}

std::string overview(std::span<const Command> commands) {
    std::string text = "Run Linux server programs as snapshots, each request from a pristine machine\n\n"
                       "Usage: kvmserver [OPTIONS] COMMAND ...\n"
                       "       kvmserver [OPTIONS]    runs the program of kvmserver.toml\n\nCommands:\n";
    for (const Command& command : commands)
        text += fmt::format("  {:<37} {}\n", command.name + (command.synopsis.empty() ? "" : " " + command.synopsis),
                            command.summary);
    return text + "\nOptions may stand before and after the command; what follows PROGRAM is the program's own.\n"
                  "More: kvmserver COMMAND --help, kvmserver --help-all\n";
}

} // namespace kvmserver::cli
