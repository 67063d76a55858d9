// "ATTACK=NAME;FACT=VALUE;..." in a function's environment, or in that of `run` and `snaprun`, says what is tried
// before the first request: the outcome is a line on stderr.
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "src/cli/run_main.hpp"
#include "tests/jail/attacks.hpp"

namespace {

void attack(const std::string& name, const std::vector<std::string>& environment) {
    if (name.ends_with("(new)"))
        return; // the trial of a deploy: that is to succeed
    attacks::Facts facts;
    std::string words;
    for (const std::string& entry : environment)
        if (entry.starts_with("ATTACK="))
            words = entry.substr(entry.find('=') + 1) + ";";
    const auto wanted = attacks::all().find(words.substr(0, words.find(';')));
    for (std::size_t end; (end = words.find(';')) != words.npos; words.erase(0, end + 1))
        if (const std::size_t middle = words.find('='); middle < end)
            facts[words.substr(0, middle)] = words.substr(middle + 1, end - middle - 1);
    if (wanted == attacks::all().end())
        return;
    if (::prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0) { // behind the wall even to ask is ENOSYS
        std::cerr << "attack " << wanted->first << ": not tried: there is no jail, and this host would suffer"
                  << std::endl;
        return;
    }
    errno = 0;
    const std::string reached = wanted->second(facts);
    const std::string text = "attack " + wanted->first + ": " + (reached.empty() ? "nothing" : "REACHED " + reached) +
                             " (" + std::strerror(errno) + ")\n";
    (void)!::write(STDERR_FILENO, text.data(), text.size());
}

} // namespace

int main(int argc, char** argv) {
    if (argc == 2 && std::string(argv[1]) == "--attacks") {
        for (const auto& [name, ignored] : attacks::all())
            std::cout << name << "\n";
        return 0;
    }
    using kvmserver::Options;
    const auto attacked = [](int (*action)(const Options&)) {
        return [action](Options options) {
            const char* const wanted = std::getenv("ATTACK");
            if (wanted)
                options.on_walls = [wanted] { attack("", {std::string("ATTACK=") + wanted}); };
            return action(options);
        };
    };
    kvmserver::cli::Actions actions;
    actions.function = [](kvmserver::FunctionOptions options) {
        options.on_machine = attack;
        return kvmserver::run_function(std::move(options));
    };
    actions.run = attacked(kvmserver::run_program);
    actions.snaprun = attacked(kvmserver::run_snapshot);
    return kvmserver::cli::run_main(argc, argv, actions);
}
