#include "tinykvm/elf/symbols.hpp"

#include "tests/catch.hpp"
#include "tests/unit/elf/support.hpp"
#include "tinykvm/elf/elf_file.hpp"

using namespace tinykvm;
using namespace elf_test;

namespace {

// Sections: 1 = code at 0x1000..0x2000, 2 = symbols, 3 = their names.
struct SymbolFile {
    ElfBuilder elf;
    std::vector<Elf64_Sym> symbols{1};
    std::vector<Elf64_Shdr> sections{4};
    std::string names = std::string(1, '\0');

    SymbolFile() {
        sections[1] = {0, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0x1000, 0x400, 0x1000, 0, 0, 16, 0};
        sections[2] = {0, SHT_SYMTAB, 0, 0, 0x2000, 0, 3, 0, 8, sizeof(Elf64_Sym)};
        sections[3] = {0, SHT_STRTAB, 0, 0, 0x3000, 0, 0, 0, 1, 0};
    }
    void add(const std::string& name, std::uint64_t at, std::uint64_t size, int type = STT_FUNC,
             std::uint16_t section = 1) {
        symbols.push_back({static_cast<std::uint32_t>(names.size()),
                           static_cast<unsigned char>(ELF64_ST_INFO(STB_GLOBAL, type)), 0, section, at, size});
        names += name + '\0';
        sections[2].sh_size = symbols.size() * sizeof(Elf64_Sym);
        sections[3].sh_size = names.size();
    }
    Bytes bytes() {
        elf.header.e_shoff = 0x800;
        elf.header.e_shentsize = sizeof(Elf64_Shdr);
        elf.header.e_shnum = static_cast<std::uint16_t>(sections.size());
        Bytes out = elf.bytes();
        out.resize(0x4000);
        std::memcpy(&out[0x800], sections.data(), sections.size() * sizeof(Elf64_Shdr));
        std::memcpy(&out[0x2000], symbols.data(), symbols.size() * sizeof(Elf64_Sym));
        std::memcpy(&out[0x3000], names.data(), names.size());
        return out;
    }
    void make_last(int bind) {
        auto& last = symbols.back();
        last.st_info = static_cast<unsigned char>(ELF64_ST_INFO(bind, ELF64_ST_TYPE(last.st_info)));
    }
    std::uint64_t address_of(const std::string& name) { // 0: none
        const Bytes content = bytes();
        const auto symbol = symbol_named(SpanSource(content), name);
        return symbol ? symbol->address : 0;
    }
    std::string at(std::uint64_t address) {
        const auto symbol = nearest_symbol(bytes(), address);
        return symbol ? symbol->name + "+" + std::to_string(symbol->offset) : "";
    }
};

} // namespace

TEST_CASE("symbols at an address") {
    SymbolFile file;
    file.add("first", 0x1100, 0x10);
    file.add("outer", 0x1200, 0x100);
    file.add("inner", 0x1240, 0x10);
    file.add("label", 0x1400, 0, STT_NOTYPE);
    file.add("data", 0x1450, 0x10, STT_OBJECT);
    file.add("elsewhere", 0x1450, 0, STT_NOTYPE, SHN_ABS);
    CHECK(file.at(0x10ff) == "");
    CHECK(file.at(0x1100) == "first+0");
    CHECK(file.at(0x110f) == "first+15");
    CHECK(file.at(0x1110) == ""); // between two functions
    CHECK(file.at(0x1248) == "inner+8");
    CHECK(file.at(0x1250) == "outer+80");
    CHECK(file.at(0x1500) == "label+256");
    CHECK(file.at(0x2000) == ""); // beyond the label's section
    CHECK(file.at(~0ull) == "");
}

TEST_CASE("the address of a symbol") {
    SymbolFile file;
    file.add("first", 0x1100, 0x10);
    file.add("twice", 0x1200, 0x10);
    file.make_last(STB_LOCAL);
    file.add("twice", 0x1300, 0x10);
    file.add("local", 0x1400, 0x10);
    file.make_last(STB_LOCAL);
    file.add("local", 0x1440, 0x10);
    file.make_last(STB_LOCAL);
    file.add("data", 0x5450, 0x10, STT_OBJECT);
    file.add("imported", 0x1500, 0, STT_FUNC, SHN_UNDEF);
    file.add("thread", 0x10, 8, STT_TLS);
    file.add("file.c", 0x1600, 0, STT_FILE);
    file.add("chosen", 0x1700, 8, STT_GNU_IFUNC);
    CHECK(file.address_of("first") == 0x1100);
    CHECK(file.address_of("twice") == 0x1300); // a global one goes first
    CHECK(file.address_of("local") == 0x1400); // of local ones the first
    CHECK(file.address_of("data") == 0x5450);
    for (const char* none : {"", "firs", "first1", "imported", "thread", "file.c", "irst"})
        CHECK(file.address_of(none) == 0);
    const Bytes bytes = file.bytes();
    CHECK(symbol_named(SpanSource(bytes), "chosen")->indirect);
    CHECK_FALSE(symbol_named(SpanSource(bytes), "first")->indirect);
    CHECK(file.address_of(std::string(100'000, 'a')) == 0);
}

TEST_CASE("symbols of real files") {
    const UniqueFd library = open_program_file(TEST_SAMPLES "/deep/libelfdeep.so");
    std::uint64_t address = 0;
    for (std::uint64_t at = 0x1; at < 0x4000 && address == 0; ++at)
        if (const auto symbol = nearest_symbol(library.get(), at); symbol && symbol->name == "elf_sample_deep")
            address = at;
    REQUIRE(address != 0);
    CHECK(nearest_symbol(library.get(), address)->offset == 0);
    CHECK(nearest_symbol(library.get(), address + 1)->offset == 1);
    CHECK(symbol_named(FileSource(library.get(), "library"), "elf_sample_deep")->address == address);
    CHECK_FALSE(nearest_symbol(-1, address));
    // Stripped, nothing of its own exported there.
    CHECK_FALSE(nearest_symbol(open_program_file("/bin/true").get(), 0x3000));
}

TEST_CASE("hostile symbol tables") {
    const auto with = [](auto&& spoil) {
        SymbolFile file;
        file.add("name", 0x1100, 0x10);
        spoil(file);
        const std::string found = file.at(0x1100);
        CHECK((found == "name+0") == (file.address_of("name") == 0x1100)); // both ways alike
        return found;
    };
    CHECK(with([](auto&) {}) == "name+0");
    CHECK(with([](auto& f) { f.names[1] = '\n'; }) == "\\x0aame+0");
    CHECK(with([](auto& f) { f.symbols[1].st_name = ~0u; }) == "");
    CHECK(with([](auto& f) { f.sections[2].sh_link = 77; }) == "");
    CHECK(with([](auto& f) { f.sections[2].sh_entsize = 1; }) == "");
    CHECK(with([](auto& f) { f.sections[2].sh_offset = ~0ull; }) == "");
    CHECK(with([](auto& f) { f.sections[2].sh_size = ~0ull; }) == "name+0"); // as much as the file has
    CHECK(with([](auto& f) { f.sections[3].sh_offset = ~0ull - 4; }) == "");
    CHECK(with([](auto& f) { f.sections[3].sh_size = ~0ull; }) == "name+0");
    CHECK(with([](auto& f) { f.sections[3].sh_size = 3; }) == ""); // not terminated
    CHECK(with([](auto& f) { f.symbols[1].st_size = ~0ull; }) == "name+0");
    CHECK(with([](auto& f) {
              f.symbols[1].st_size = 0;
              f.sections[1].sh_size = ~0ull;
          }) == "name+0");
    CHECK(with([](auto& f) { f.names = std::string(0xf00, 'a'), f.sections[3].sh_size = 0xf01; }) == "");

    SymbolFile file;
    file.add("name", 0x1100, 0x10);
    Bytes bytes = file.bytes();
    for (std::size_t size = 0; size < bytes.size(); size += 13) {
        const auto part = std::span(bytes).first(size);
        nearest_symbol(part, 0x1100);
        symbol_named(SpanSource(part), "name");
    }
}
