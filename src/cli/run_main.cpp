// Connects the commands with the functions that do their work.
#include <cstring>

#include "src/cli/command.hpp"
#include "src/cli/dev/dev.hpp"
#include "src/cli/help/help.hpp"
#include "src/cli/init/init.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/cli/processes/examiner_process.hpp"
#include "src/cli/processes/function_process.hpp"
#include "src/cli/run_main.hpp"
#include "src/setup/options.hpp"

int kvmserver::cli::run_main(int argc, char** argv, const Actions& actions) {
    const std::vector<std::string> words(argv + (argc > 0), argv + argc);
    const auto memory_of = [&](int word) {
        return argc > word ? std::span(argv[word], std::strlen(argv[word])) : std::span<char>();
    };
    if (is_function_process(words))
        return function_process(words, memory_of(2), actions.function);
    if (is_function_template(words))
        return function_template(words, memory_of(1), memory_of(2), actions.function);
    if (is_examiner(words))
        return examiner_process(words);
    const Command commands[] = {
        run_command(actions.run),
        snapshot_command(kvmserver::make_snapshot),
        snaprun_command(actions.snaprun),
        inspect_command(),
        debug_command(kvmserver::debug_snapshot),
        init_command(),
        dev_command(),
        deploy_command(),
        list_command("list"),
        list_command("ls"),
        describe_command(),
        versions_command(),
        history_command(),
        rollback_command(),
        suspend_command(),
        resume_command(),
        migrate_command(),
        traffic_command(),
        delete_command(),
        env_command(),
        secret_command(),
        push_command(),
        pull_command(),
        invoke_command(),
        logs_command(),
        top_command(),
        gc_command(),
        verify_command(),
        nodes_command(),
        drain_command(),
        uncordon_command(),
        certificate_command(),
        token_command(),
        login_command(),
        remote_command(),
        serve_command(),
        doctor_command(),
        help_command(),
        completion_command(),
        version_command(),
    };
    return run_cli(commands, words, host_context());
}
