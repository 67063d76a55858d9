#include "src/embed/symbol_table.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"
#include "tinykvm/elf/elf_file.hpp"
#include "tinykvm/elf/symbols.hpp"

namespace kvmserver::embed {

using namespace tinykvm;

namespace {

// A file whose beginning is mapped at `begin`.
struct Mapped {
    std::string path;
    std::uint64_t begin;
};

// By address, but the program first. An image does not know the offsets of its regions: the lowest region of a file
// holds its beginning.
std::vector<Mapped> mapped_files(const AddressSpace::Regions& regions, const std::string& program) {
    std::vector<Mapped> files;
    std::set<std::string> seen;
    for (const auto& [begin, region] : regions)
        if (region.name.starts_with('/') && seen.insert(region.name).second)
            files.push_back({region.name, begin});
    std::stable_partition(files.begin(), files.end(), [&](const Mapped& file) { return file.path == program; });
    return files;
}

// Whether the file is still the one that was mapped. Its beginning has the headers and, usually, the build's ID.
bool same_beginning(const tinykvm::ByteSource& file, std::uint64_t begin, const ReadMemory& memory) {
    constexpr std::uint64_t kCompared = 1024; // what follows may be code, which is patched
    const std::size_t bytes = std::min(file.size(), kCompared);
    std::vector<std::byte> mapped(bytes), stored(bytes);
    return file.read(0, stored) && memory(begin, mapped) && mapped == stored;
}

enum class Look { found, none, indirect, unusable };

Look look_in(const Mapped& mapped, bool is_program, const ReadMemory& memory, const std::string& name,
             std::uint64_t& address) {
    try {
        const OpenElf elf = open_elf(mapped.path, is_program ? ElfUse::program : ElfUse::library);
        const FileSource file(elf.fd.get(), mapped.path);
        if (!same_beginning(file, mapped.begin, memory))
            return Look::unusable;
        const auto symbol = symbol_named(file, name);
        if (!symbol)
            return Look::none;
        address = mapped.begin - page_down(elf.elf.low) + symbol->address;
        return symbol->indirect ? Look::indirect : Look::found;
    } catch (const UserError&) {
        return is_program ? Look::unusable : Look::none; // many other files are no libraries
    } catch (const HostError&) {
        return Look::unusable;
    }
}

} // namespace

std::uint64_t find_symbol(const AddressSpace::Regions& regions, const std::string& program, const ReadMemory& memory,
                          const std::string& name) {
    std::string unusable;
    for (const Mapped& mapped : mapped_files(regions, program)) {
        std::uint64_t address = 0;
        switch (look_in(mapped, mapped.path == program, memory, name, address)) {
        case Look::found: return address;
        case Look::indirect:
            throw UserError(ExitCode::not_found,
                            fmt::format("{}: {} is an indirect function (ifunc), whose address the program itself "
                                        "chooses; call a function that calls it",
                                        mapped.path, brief(name)));
        case Look::unusable: unusable = unusable.empty() ? mapped.path : unusable; break;
        case Look::none: break;
        }
    }
    throw UserError(ExitCode::not_found,
                    fmt::format("{}: no function or variable {} in it or its libraries; {}", program, brief(name),
                                unusable.empty() ? "if its symbols are stripped, link it with -rdynamic; C++ functions "
                                                   "need extern \"C\""
                                                 : unusable + " is not the file that the image was made from"));
}

} // namespace kvmserver::embed
