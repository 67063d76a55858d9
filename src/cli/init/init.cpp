// kvmserver init: creates a manifest, and a small program if there is none.
#include "src/cli/init/init.hpp"

#include <fmt/format.h>

#include "src/cli/init/files.hpp"
#include "src/cli/init/guess.hpp"
#include "src/cli/init/templates.hpp"
#include "src/cli/paths.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/store/functions/names.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace init {

std::string valid_name(const std::string& text) {
    constexpr std::size_t kMax = 63;
    std::string name;
    for (const char c : text) {
        const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        const bool fits = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
        if (fits)
            name += lower;
        else if (!name.empty() && name.back() != '-')
            name += '-';
    }
    name.resize(std::min(name.size(), kMax));
    while (name.ends_with('-'))
        name.pop_back();
    return name.empty() ? "function" : name;
}

} // namespace init

namespace {

using namespace init;

const std::vector<OptionSpec>& options() {
    static const std::string names = template_names(); // an OptionSpec only refers to it
    static const std::vector<OptionSpec> all{
        {.name = "template",
         .kind = Kind::text,
         .group = "Options",
         .value = names,
         .help = "language or framework of the program (guessed from the files in DIR)"},
        {.name = "list", .group = "Options", .help = "list the templates"},
        {.name = "name",
         .kind = Kind::text,
         .group = "Options",
         .value = "NAME",
         .help = "of the function (the folder's name)"},
    };
    return all;
}

std::vector<File> files_for(const Invocation& invocation, const std::string& folder, const std::string& name,
                            Context& context) {
    if (const auto given = platform::text(invocation, "template"))
        return files_of(find_template(*given), name);
    const auto guess = guess_template(folder);
    if (!guess)
        throw tinykvm::UserError(
            tinykvm::ExitCode::usage,
            fmt::format("{} holds no program that tells its language: choose one with --template {}", folder,
                        template_names()));
    const Template& chosen = find_template(guess->template_name);
    File manifest = manifest_of(chosen, name, guess->values);
    context.err << fmt::format("kvmserver: recognized {}: {}\n", chosen.name, guess->because);
    return {std::move(manifest)};
}

int run_init(const Invocation& invocation, Context& context) {
    platform::expect_operands(invocation, "init", "[DIR]", 0, 1);
    if (platform::flag(invocation, "list")) {
        for (const Template& each : templates())
            context.out << fmt::format("{:<12}{}\n", each.name, each.summary);
        return 0;
    }
    const std::string operand = invocation.operands.empty() ? "." : invocation.operands.front();
    const std::string folder = absolute_path(context.folder, operand);
    const std::string name =
        platform::text(invocation, "name").value_or(valid_name(std::filesystem::path(folder).filename().string()));
    store::check_function_name(name);
    const std::vector<File> files = files_for(invocation, folder, name, context);
    create_files(folder, files);
    for (const File& file : files)
        context.out << "Created " << file.path << '\n';
    context.err << fmt::format("kvmserver: next: {}kvmserver dev --watch, kvmserver deploy\n",
                               operand == "." ? "" : fmt::format("cd {}, ", operand));
    return 0;
}

} // namespace

Command init_command() {
    return {.name = "init",
            .synopsis = "[DIR]",
            .summary = "begin a function: a manifest and a small program",
            .operands = Operands::ours,
            .options = options(),
            .action = run_init};
}

} // namespace kvmserver::cli
