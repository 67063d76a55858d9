// kvmserver init: creates a manifest, and a small program if there is none.
#include "src/cli/init/init.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

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
using tinykvm::ExitCode;

std::string shown(const std::vector<std::string>& files) {
    constexpr std::size_t kMost = 4;
    const std::size_t more = files.size() > kMost ? files.size() - kMost : 0;
    return fmt::format("{}{}", fmt::join(files.begin(), files.end() - static_cast<std::ptrdiff_t>(more), ", "),
                       more ? fmt::format(" and {} more", more) : "");
}

const std::vector<OptionSpec>& init_options() {
    static const std::string names = template_names(); // an OptionSpec only refers to it
    static const std::vector<OptionSpec> all{
        {.name = "template",
         .kind = Kind::text,
         .group = "Options",
         .value = names,
         .help = "language or framework of the program (guessed from the files in DIR)"},
        {.name = "program",
         .kind = Kind::text,
         .group = "Options",
         .value = "FILE",
         .help = "the file in DIR that is the program, if its name does not tell"},
        {.name = "list", .group = "Options", .help = "list the templates"},
        {.name = "name",
         .kind = Kind::text,
         .group = "Options",
         .value = "NAME",
         .help = "of the function (the folder's name)"},
        platform::kQuiet,
    };
    return all;
}

[[noreturn]] void fail(ExitCode code, const std::string& what) { throw tinykvm::UserError(code, what); }

Guess named_program(const std::string& folder, const std::string& file, const std::string& template_name) {
    const std::filesystem::path path = absolute_path(folder, file);
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error))
        fail(ExitCode::not_found, fmt::format("--program={}: there is no such file in {}", file, folder));
    const std::string relative = path.lexically_relative(std::filesystem::path(folder).lexically_normal()).string();
    return guess_program(folder, relative.starts_with("..") ? path.string() : relative, template_name);
}

// Without --template and --program.
Guess guessed(const std::string& folder) {
    if (auto guess = guess_template(folder))
        return *guess;
    const std::vector<std::string> files = program_files(folder, "");
    if (files.size() == 1)
        return guess_program(folder, files.front(), "");
    if (!files.empty())
        fail(ExitCode::usage,
             fmt::format("{} has {}, and none has a usual name ({}): which is the program? --program {}", folder,
                         shown(files), usual_names(), files.front()));
    fail(ExitCode::usage,
         fmt::format("{} holds neither a project that init knows (Cargo.toml, go.mod, package.json, requirements.txt "
                     "...) nor a program ({} ...): name its file with --program FILE, or begin with a sample: "
                     "--template {}",
                     folder, usual_names(), template_names()));
}

// With --template. Returns nothing if the folder holds no program of it, and the sample may be made.
std::optional<Guess> of_template(const std::string& folder, const std::string& name) {
    try {
        if (auto guess = guess_template(folder); guess && guess->template_name == name)
            return guess;
    } catch (const tinykvm::UserError&) { // another language's project
    }
    const std::vector<std::string> files = program_files(folder, name);
    if (files.empty())
        return std::nullopt;
    if (!starts_one_file(name))
        fail(ExitCode::conflict,
             fmt::format("{} holds a program already ({}), and the sample of {} would be deployed in its place: try "
                         "without --template, or make the sample in an empty folder",
                         folder, shown(files), name));
    if (files.size() == 1)
        return guess_program(folder, files.front(), name);
    fail(ExitCode::conflict,
         fmt::format("{} holds {} already: which is the program? --program {}; or make the sample in an empty folder",
                     folder, shown(files), files.front()));
}

std::vector<File> files_for(const Invocation& invocation, const std::string& folder, const std::string& name,
                            Context& context) {
    const auto template_name = platform::text(invocation, "template");
    if (template_name)
        find_template(*template_name); // or it is refused
    std::optional<Guess> guess;
    if (const auto program = platform::text(invocation, "program"))
        guess = named_program(folder, *program, template_name.value_or(""));
    else if (template_name)
        guess = of_template(folder, *template_name);
    else
        guess = guessed(folder);
    if (!guess)
        return files_of(find_template(*template_name), name);
    const Template& chosen = find_template(guess->template_name);
    File manifest = manifest_of(chosen, name, guess->values);
    if (!platform::flag(invocation, "quiet"))
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
    if (!platform::flag(invocation, "quiet"))
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
            .options = init_options(),
            .action = run_init};
}

} // namespace kvmserver::cli
