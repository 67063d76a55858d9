#include "tinykvm/machine/program.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/path_text.hpp"
#include "tinykvm/elf/libraries.hpp"
#include "tinykvm/elf/shebang.hpp"
#include "tinykvm/elf/stack.hpp"
#include "tinykvm/elf/vdso/vdso.hpp"
#include "tinykvm/machine/runtime_files.hpp"

namespace tinykvm {
namespace {

constexpr int kScriptDepth = 5; // as in Linux

bool executable_file(const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

std::string look_up(const std::string& name, const std::string& cwd, const std::string& search_path) {
    if (name.find('/') != std::string::npos) {
        return join_path(cwd, name);
    }
    for (std::size_t at = 0; at <= search_path.size();) {
        const std::size_t end = std::min(search_path.find(':', at), search_path.size());
        const std::string folder = search_path.substr(at, end - at);
        std::string path = join_path(cwd, (folder.empty() ? "." : folder) + "/" + name);
        if (executable_file(path))
            return path;
        at = end + 1;
    }
    const bool here = executable_file(join_path(cwd, name));
    throw UserError(ExitCode::not_found, fmt::format("{}: not found in PATH{}", name,
                                                     here ? fmt::format("; did you mean ./{}?", name) : ""));
}

struct LoadedElf {
    std::uint64_t base = 0; // added to the file's addresses
    std::uint64_t end = 0;
};

// Maps the segments of a file. `at` is the wanted base of a position-independent file; 0: any.
LoadedElf map_elf(AddressSpace& space, OpenElf&& file, const std::string& path, std::uint64_t at) {
    const ElfFile& elf = file.elf;
    LoadedElf loaded;
    const std::uint64_t low = page_down(elf.low);
    const std::uint64_t span = page_up(elf.high) - low;
    if (elf.type == ElfType::dyn) {
        if (at == 0)
            at = space.find_free(span + elf.alignment);
        at = (at + elf.alignment - 1) & ~(elf.alignment - 1);
        loaded.base = at - low;
    }
    const auto backing = std::make_shared<FileBacking>(FileBacking{std::move(file.fd), path});
    const auto check = [&](std::int64_t result) {
        if (result < 0)
            throw UserError(
                ExitCode::failure,
                fmt::format("{}: does not fit into the machine's address space (error {}); raise --max-address-space",
                            path, -result));
    };
    for (const ElfSegment& s : elf.segments) {
        const auto prot = static_cast<std::uint32_t>(s.prot);
        const std::uint64_t begin = page_down(loaded.base + s.vaddr);
        const std::uint64_t file_end = loaded.base + s.vaddr + s.filesz;
        const std::uint64_t end = page_up(loaded.base + s.end());
        if (s.filesz > 0)
            check(space.mmap(begin, page_up(file_end) - begin, prot, MAP_PRIVATE | MAP_FIXED, backing,
                             page_down(s.offset)));
        const std::uint64_t anonymous = s.filesz > 0 ? page_up(file_end) : begin;
        if (end > anonymous)
            check(space.mmap(anonymous, end - anonymous, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, nullptr, 0));
        if (s.filesz > 0 && s.memsz > s.filesz && (file_end & (kPageSize - 1)) != 0) {
            const std::vector<std::byte> zeros(page_up(file_end) - file_end);
            space.fill(GuestVirt(file_end), zeros);
        }
        loaded.end = std::max(loaded.end, end);
    }
    return loaded;
}

} // namespace

ProgramSpec resolve_program(const std::string& name, const std::vector<std::string>& args, const std::string& cwd,
                            const std::string& search_path, const Substitute& substitute) {
    // Returns the path and the program's name for itself: a substitute is started by its path, as a shim would do it.
    const auto find = [&](const std::string& word) -> std::pair<std::string, std::string> {
        const std::string found = look_up(word, cwd, search_path);
        const bool searched = word.find('/') == std::string::npos;
        const std::string chosen = substitute && searched ? substitute(found) : found;
        return {chosen, chosen == found ? word : chosen};
    };
    ProgramSpec spec;
    spec.name = name;
    spec.cwd = cwd;
    std::string own_name;
    std::tie(spec.path, own_name) = find(name);
    spec.args.push_back(own_name);
    spec.args.insert(spec.args.end(), args.begin(), args.end());
    for (int depth = 0;; ++depth) {
        const UniqueFd fd = open_program_file(spec.path);
        const FileSource source(fd.get(), spec.path);
        const auto shebang = read_shebang(source, spec.path);
        if (!shebang) {
            if (!is_elf(source))
                throw UserError(
                    ExitCode::failure,
                    fmt::format(
                        "{}: not an ELF program and no script with a #! line; give a program such as node, python3 or "
                        "a compiled binary",
                        spec.path));
            break;
        }
        if (depth == kScriptDepth)
            throw UserError(ExitCode::failure,
                            fmt::format("{}: too many scripts that are each other's interpreter", spec.path));
        if (spec.script.empty())
            spec.script = spec.path;
        std::vector<std::string> rest(spec.args.begin() + 1, spec.args.end());
        spec.args = {shebang->interpreter};
        if (!shebang->argument.empty())
            spec.args.push_back(shebang->argument);
        spec.args.push_back(spec.path);
        spec.args.insert(spec.args.end(), rest.begin(), rest.end());
        const std::string interpreter = join_path(cwd, shebang->interpreter);
        // /usr/bin/env would look up the program and call execve, which machines do not have. So we look it up here.
        if ((interpreter == "/usr/bin/env" || interpreter == "/bin/env") && !shebang->argument.empty()) {
            std::string word = shebang->argument;
            if (word.starts_with("-S "))
                word = word.substr(3);
            const std::size_t space = word.find(' ');
            std::string extra = space == std::string::npos ? "" : word.substr(space + 1);
            word = word.substr(0, space);
            std::tie(spec.path, word) = find(word);
            spec.args.erase(spec.args.begin(), spec.args.begin() + 2);
            if (!extra.empty())
                spec.args.insert(spec.args.begin(), extra);
            spec.args.insert(spec.args.begin(), word);
            continue;
        }
        if (::access(interpreter.c_str(), F_OK) != 0)
            throw UserError(ExitCode::not_found,
                            fmt::format("{}: its interpreter {} does not exist", spec.path, interpreter));
        spec.path = interpreter;
    }
    spec.found_as = spec.path;
    if (char* real = ::realpath(spec.path.c_str(), nullptr)) {
        spec.path = real;
        ::free(real);
    }
    return spec;
}

std::vector<std::string> implied_files(const ProgramSpec& program) {
    std::vector<std::string> files = {program.path};
    if (!program.script.empty())
        files.push_back(program.script);
    if (program.found_as != program.path && !program.found_as.empty())
        files.push_back(program.found_as); // programs examine their own file by this name
    LibrarySearch search;
    search.cwd = program.cwd;
    for (const auto* variables : {&program.env, &program.late_env})
        for (const std::string& entry : *variables) {
            if (entry.starts_with("LD_LIBRARY_PATH="))
                search.library_path = entry.substr(16);
            if (entry.starts_with("LD_PRELOAD="))
                search.preload = entry.substr(11);
        }
    const LibraryList list = find_libraries(program.path, search);
    require_libraries(program.path, list);
    const std::vector<std::string> system = system_files();
    const auto add = [&](const std::string& path) {
        const auto beneath = [&](const std::string& folder) {
            return path.starts_with(folder) && path[folder.size()] == '/';
        };
        if (std::none_of(system.begin(), system.end(), beneath))
            files.push_back(path);
    };
    for (const Library& library : list.found) {
        add(library.path);
        if (library.canonical != library.path)
            add(library.canonical);
    }
    files.insert(files.end(), list.configuration.begin(), list.configuration.end());
    files.insert(files.end(), system.begin(), system.end());
    for (const std::string& path : interpreter_files(program))
        add(path);
    return files;
}

LoadedProgram load_program(AddressSpace& space, const ProgramSpec& program, const LoadOptions& options) {
    LoadedProgram loaded;
    OpenElf file = open_elf(program.path);
    const ElfFile elf = file.elf;
    const LoadedElf main = map_elf(space, std::move(file), program.path, layout::kPieBase);
    loaded.entry = main.base + elf.entry;
    loaded.brk = page_up(main.end);
    std::uint64_t interpreter_base = 0;
    if (!elf.interpreter.empty()) {
        OpenElf interpreter = open_elf(elf.interpreter, ElfUse::interpreter);
        const std::uint64_t entry = interpreter.elf.entry;
        const LoadedElf at = map_elf(space, std::move(interpreter), elf.interpreter, 0);
        interpreter_base = at.base;
        loaded.entry = at.base + entry;
    }
    space.set_brk(loaded.brk);

    StackInput input;
    input.args = program.args;
    input.env = program.env;
    input.late_env = program.late_env;
    input.execfn = program.script.empty() ? program.path : program.script;
    input.describe(elf, main.base);
    input.interpreter_base = interpreter_base;
    input.uid = input.euid = options.uid;
    input.gid = input.egid = options.gid;
    input.hwcap = options.hwcap;
    input.hwcap2 = 2; // FSGSBASE
    input.vdso = layout::kVdso;
    input.minsigstksz = options.signal_frame_bytes;
    if (::getrandom(input.random.data(), input.random.size(), 0) != static_cast<ssize_t>(input.random.size()))
        throw_errno("getrandom");
    const InitialStack stack = build_stack(input, GuestVirt(layout::kStackTop), layout::kStackBytes / 4);
    const std::uint32_t stack_prot = PROT_READ | PROT_WRITE | (elf.executable_stack ? std::uint32_t{PROT_EXEC} : 0u);
    space.place(GuestVirt(layout::kStackTop - layout::kStackBytes), layout::kStackBytes, stack_prot, kRegionUser,
                "[stack]");
    space.fill(GuestVirt(stack.rsp), stack.bytes);
    loaded.stack = stack.rsp;
    loaded.random_at = stack.random_at;
    for (std::size_t i = 0; i < stack.late_env.size(); ++i)
        loaded.late_env.push_back(
            {program.late_env[i].substr(0, program.late_env[i].find('=')), stack.late_env[i], kLateEnvBytes});

    const auto vdso = vdso_image();
    space.place(GuestVirt(layout::kVdso), vdso.size(), PROT_READ | PROT_EXEC, 0, "[vdso]");
    space.fill(GuestVirt(layout::kVdso), vdso);
    return loaded;
}

} // namespace tinykvm
