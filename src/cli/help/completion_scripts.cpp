#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "src/cli/help/completion.hpp"

namespace kvmserver::cli {
namespace {

// Escapes for a single-quoted shell word, with a backslash before each character of `special`.
std::string escaped(const std::string& text, std::string_view special) {
    std::string result;
    for (const char c : text) {
        if (c == '\'')
            result += "'\\''";
        else if (special.find(c) != special.npos)
            result += {'\\', c};
        else
            result += c;
    }
    return result;
}

std::string joined(const std::set<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

// Determines where the cursor is: after which command, in which option's value, or among the program's arguments.
constexpr const char* kBash = R"(_kvmserver() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} command= value= guest= i=1 word operands=()
    local with_value=' {0} '
    [[ $cur == = ]] && cur=
    COMPREPLY=()
    while ((i < COMP_CWORD)); do
        word=${{COMP_WORDS[i]}}
        case $word in
            --) guest=1; break ;;
            -*)
                if [[ ${{COMP_WORDS[i + 1]-}} == = ]]; then
                    if ((i + 2 >= COMP_CWORD)); then value=$word; break; fi
                    ((i += 2))
                elif [[ $with_value == *" $word "* ]]; then
                    if ((i + 1 >= COMP_CWORD)); then value=$word; break; fi
                    ((i += 1))
                fi ;;
            *)
                if [[ -z $command ]]; then command=$word
                elif [[ ' {1} ' == *" $command "* ]]; then guest=1; break
                else operands+=("$word")
                fi ;;
        esac
        ((i += 1))
    done
    [[ -n $guest ]] && return # the shell's default: file names
    local words=
    if [[ -n $value ]]; then
        case $value in
{2}        esac
    elif [[ $cur == -* ]]; then
        case $command in
{3}        esac
    elif [[ -z $command ]]; then
        words='{4}'
    else
        case $command/${{#operands[@]}} in
{5}        esac
    fi
    [[ -n $words ]] && COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _kvmserver kvmserver
)";

std::string zsh_words(Words words) {
    return words == Words::none ? "_files"
                                : fmt::format("{{compadd -- $({} $words[2] 2>/dev/null)}}", words_command(words));
}

std::string zsh_option(const CompletedOption& option) {
    const std::string help = escaped(option.help, "[]:\\");
    std::string value;
    if (!option.value.empty()) {
        const std::string what = option.words != Words::none ? zsh_words(option.words)
                                 : !option.choices.empty()   ? fmt::format("({})", fmt::join(option.choices, " "))
                                 : option.value == "DIR"     ? "_files -/"
                                 : option.value == "FILE" || option.value == "PATHS" ? "_files"
                                                                                     : " ";
        const std::string message = escaped(option.value, "[]:\\|");
        value = fmt::format("{}:{}:{}", option.takes_value ? "" : ":", message, what);
    }
    const char* glue = option.takes_value ? "=" : option.value.empty() ? "" : "=-";
    std::string line = fmt::format("      '*--{}{}[{}]{}'\n", option.name, glue, help, value);
    if (!option.letter.empty())
        line += fmt::format("      '*-{}{}[{}]{}'\n", option.letter, option.takes_value ? "+" : "", help, value);
    return line;
}

std::string zsh_operands(const Completed& command) {
    if (!command.choices.empty() || !command.words.empty()) {
        std::string specs;
        for (std::size_t i = 0; i < std::max<std::size_t>(command.words.size(), 1); ++i)
            if (i == 0 && !command.choices.empty())
                specs += fmt::format("      '1: :({})'\n", fmt::join(command.choices, " "));
            else if (command.words[i] != Words::none)
                specs += fmt::format("      '{}: :{}'\n", i + 1, zsh_words(command.words[i]));
        return specs;
    }
    switch (command.operands) {
    case Operands::guest:
        return "      '1:program: _alternative \"files:file:_files\" \"commands:command:_command_names "
               "-e\"'\n"
               "      '*::argument:_default'\n";
    case Operands::ours: return "      '*:file:_files'\n";
    case Operands::none: break;
    }
    return "";
}

} // namespace

std::string bash_completion(std::span<const Completed> commands) {
    std::set<std::string> names, guests, with_value, all;
    std::string values, options, operands;
    std::set<std::string> described;
    for (const Completed& command : commands) {
        names.insert(command.name);
        if (command.operands == Operands::guest)
            guests.insert(command.name);
        std::set<std::string> words;
        for (const CompletedOption& option : command.options) {
            words.insert("--" + option.name);
            if (!option.takes_value)
                continue;
            with_value.insert("--" + option.name);
            if (!option.letter.empty())
                with_value.insert("-" + option.letter);
            if (option.words != Words::none && described.insert(option.name).second)
                values += fmt::format("            --{}) words=$({} 2>/dev/null) ;;\n", option.name,
                                      words_command(option.words));
            else if (!option.choices.empty() && described.insert(option.name).second)
                values += fmt::format("            --{}) words='{}' ;;\n", option.name, fmt::join(option.choices, " "));
        }
        options += fmt::format("            {}) words='{}' ;;\n", command.name, joined(words));
        all.merge(words);
        if (!command.choices.empty())
            operands += fmt::format("            {}/0) words='{}' ;;\n", command.name, fmt::join(command.choices, " "));
        for (std::size_t i = 0; i < command.words.size(); ++i)
            if (command.words[i] != Words::none)
                operands += fmt::format("            {}/{}) words=$({} {}2>/dev/null) ;;\n", command.name, i,
                                        words_command(command.words[i]), i == 0 ? "" : "\"${operands[0]}\" ");
    }
    options += fmt::format("            *) words='{}' ;;\n", joined(all));
    return "# bash completion: eval \"$(kvmserver completion bash)\"\n" +
           fmt::format(kBash, joined(with_value), joined(guests), values, options, joined(names), operands);
}

std::string zsh_completion(std::span<const Completed> commands) {
    std::string names, cases;
    for (const Completed& command : commands) {
        names += fmt::format("    '{}:{}'\n", command.name, escaped(command.summary, ":"));
        cases += fmt::format("    {})\n      _arguments -S -A '-*' \\\n", command.name);
        std::string specs;
        for (const CompletedOption& option : command.options)
            specs += zsh_option(option);
        specs += zsh_operands(command);
        specs.pop_back();
        for (const char c : specs)
            cases += c == '\n' ? std::string(" \\\n") : std::string(1, c);
        cases += " ;;\n";
    }
    return fmt::format("#compdef kvmserver\n"
                       "# zsh completion: source <(kvmserver completion zsh)\n"
                       "_kvmserver() {{\n"
                       "  local curcontext=$curcontext state line\n"
                       "  local -a commands=(\n{}  )\n"
                       "  _arguments -C -A '-*' '1:command:->command' '*::operand:->operand'\n"
                       "  case $state in\n"
                       "  command) _describe -t commands command commands ;;\n"
                       "  operand)\n"
                       "    case $words[1] in\n{}"
                       "    esac ;;\n"
                       "  esac\n"
                       "}}\n"
                       // Either a file in $fpath, read for the first completion, or sourced.
                       "if [[ $funcstack[1] == _kvmserver ]]; then _kvmserver \"$@\"; else compdef _kvmserver "
                       "kvmserver; fi\n",
                       names, cases);
}

std::string fish_completion(std::span<const Completed> commands) {
    std::string text = "# fish completion: kvmserver completion fish | source\n";
    for (const Completed& command : commands)
        text += fmt::format("complete -c kvmserver -f -n __fish_use_subcommand -a {} -d '{}'\n", command.name,
                            escaped(command.summary, "\\"));
    for (const Completed& command : commands) {
        const std::string base = fmt::format("complete -c kvmserver -n '__fish_seen_subcommand_from {}'", command.name);
        if (command.operands == Operands::none)
            text += base + " -f\n";
        if (!command.choices.empty())
            text += fmt::format("{} -f -a '{}'\n", base, fmt::join(command.choices, " "));
        for (const Words words : command.words)
            if (words == Words::functions || words == Words::remotes) // fish does not tell the operand before it
                text += fmt::format("{} -f -a '({} 2>/dev/null)'\n", base, words_command(words));
        for (const CompletedOption& option : command.options) {
            std::string line = fmt::format("{} -l {}", base, option.name);
            if (!option.letter.empty())
                line += " -s " + option.letter;
            if (option.words != Words::none)
                line += fmt::format(" -x -a '({} 2>/dev/null)'", words_command(option.words));
            else if (!option.choices.empty())
                line += fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
            else if (option.takes_value)
                line += option.value == "FILE" || option.value == "DIR" ? " -r -F" : " -x";
            text += fmt::format("{} -d '{}'\n", line, escaped(option.help, "\\"));
        }
    }
    return text;
}

} // namespace kvmserver::cli
