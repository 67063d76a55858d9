#include "tinykvm/elf/elf_file.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/catch.hpp"
#include "tests/unit/elf/support.hpp"
#include "tinykvm/abi/layout.hpp"
#include "tinykvm/elf/shebang.hpp"

using namespace tinykvm;
using namespace elf_test;

namespace {

std::string error_for(const Bytes& bytes, ElfUse use = ElfUse::program) {
    return error_of([&] { parse_elf(bytes, "x", use); });
}

// The error for a good file in which `spoil` changed something.
template <class F>
std::string spoiled(F&& spoil, std::uint16_t type = ET_EXEC, std::uint64_t base = ElfBuilder::kBase) {
    ElfBuilder elf(type, base);
    spoil(elf);
    return error_for(elf.bytes());
}

} // namespace

TEST_CASE("a hand-made program") {
    ElfBuilder builder;
    builder.text(0x500, "/lib64/ld.so");
    builder.add(PT_INTERP, PF_R, 0x500, 0, 13, 13, 1);
    builder.add(PT_GNU_STACK, PF_R | PF_W | PF_X, 0, 0, 0, 0, 16);
    const ElfFile elf = parse_elf(builder.bytes(), "x");
    CHECK(elf.type == ElfType::exec);
    CHECK(elf.entry == 0x400400);
    REQUIRE(elf.segments.size() == 2);
    CHECK(elf.segments[0].prot == (PROT_READ | PROT_EXEC));
    CHECK(elf.segments[1].prot == (PROT_READ | PROT_WRITE));
    CHECK(elf.segments[1].filesz == 0x400);
    CHECK(elf.segments[1].end() == 0x403800);
    CHECK(elf.low == 0x400000);
    CHECK(elf.high == 0x403800);
    CHECK(elf.alignment == 0x1000);
    CHECK(elf.phdr == 0x400040);
    CHECK(elf.phnum == 4);
    CHECK(elf.interpreter == "/lib64/ld.so");
    CHECK(elf.executable_stack);
}

TEST_CASE("real files") {
    const OpenElf self = open_elf("/proc/self/exe");
    CHECK(self.elf.type == ElfType::dyn);
    CHECK(self.elf.interpreter == "/lib64/ld-linux-x86-64.so.2");
    CHECK_FALSE(self.elf.executable_stack);
    CHECK(self.elf.phdr == 64);
    CHECK(self.elf.dynamic_size > 0);

    CHECK(open_elf("/bin/true").elf.entry != 0);
    const OpenElf loader = open_elf("/lib64/ld-linux-x86-64.so.2", ElfUse::interpreter);
    CHECK(loader.elf.interpreter.empty());
    const std::string library = TEST_SAMPLES "/deep/libelfdeep.so";
    CHECK(open_elf(library, ElfUse::library).elf.entry == 0);
    CHECK(error_of([&] { open_elf(library); }) ==
          library + ": is a shared library, not a program: it has no entry point");
}

TEST_CASE("files that cannot be opened as a program") {
    const TempFolder temp;
    const std::string folder = temp.path.string();
    CHECK(error_of([&] { open_elf(folder); }) == folder + ": is a folder, not a program");
    CHECK(error_of([&] { open_elf(folder + "/none"); }) == folder + "/none: no such file");
    CHECK(error_of([&] { open_elf("/bin/true/none"); }) == "/bin/true/none: no such file");
    REQUIRE(::mkfifo((folder + "/fifo").c_str(), 0600) == 0);
    CHECK(error_of([&] { open_elf(folder + "/fifo"); }) == folder + "/fifo: is not a regular file");
    if (::geteuid() != 0) {
        write_whole(temp.path / "secret", bytes_of("x"));
        REQUIRE(::chmod((folder + "/secret").c_str(), 0) == 0);
        CHECK(error_of([&] { open_elf(folder + "/secret"); }).find("may not be read") != std::string::npos);
    }
}

TEST_CASE("not a program for this machine") {
    CHECK(error_for({}) == "x: is empty, not an ELF program");
    CHECK(error_for(bytes_of("hello")) == "x: not an ELF program");
    CHECK(error_for(bytes_of("\x7f"
                             "EL")) == "x: not an ELF program");
    CHECK(error_for(bytes_of("#!/bin/sh\n")) ==
          "x: is a script, not an ELF program; give its interpreter as the program");
    CHECK(error_for(bytes_of(std::string("\x7f"
                                         "ELF\2\1\1"))) ==
          "x: truncated: the ELF header ends at byte 64 but the file has 7");
    CHECK(spoiled([](auto& e) { e.header.e_machine = EM_AARCH64; }) ==
          "x: is for aarch64; kvmserver runs 64-bit x86 programs");
    CHECK(spoiled([](auto& e) { e.header.e_machine = 4711; }) ==
          "x: is for machine 4711; kvmserver runs 64-bit x86 programs");
    CHECK(spoiled([](auto& e) {
              e.header.e_ident[EI_DATA] = ELFDATA2MSB;
              e.header.e_machine = EM_S390 << 8;
          }) == "x: is for s390; kvmserver runs 64-bit x86 programs");
    CHECK(spoiled([](auto& e) { e.header.e_ident[EI_CLASS] = 7; }) == "x: not an ELF program (unknown ELF class 7)");
    CHECK(spoiled([](auto& e) { e.header.e_ident[EI_DATA] = 0; }) == "x: not an ELF program (unknown byte order 0)");
    CHECK(spoiled([](auto& e) { e.header.e_ident[EI_OSABI] = ELFOSABI_FREEBSD; }) ==
          "x: is for FreeBSD; kvmserver runs Linux programs");
    CHECK(spoiled([](auto& e) { e.header.e_type = ET_REL; }) == "x: is an object file; link it into a program first");
    CHECK(spoiled([](auto& e) { e.header.e_type = ET_CORE; }) == "x: is a core dump, not a program");
    CHECK(spoiled([](auto& e) { e.header.e_type = 77; }) == "x: has an unknown ELF type (77)");
    CHECK(spoiled([](auto& e) { e.header.e_version = 9; }) == "x: has an unknown ELF version (9)");
}

TEST_CASE("32-bit programs") {
    Elf32_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS32;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    const auto error_with = [&](std::uint16_t machine) {
        header.e_machine = machine;
        Bytes bytes(sizeof header);
        std::memcpy(bytes.data(), &header, sizeof header);
        return error_for(bytes);
    };
    CHECK(error_with(EM_386) == "x: is a 32-bit ELF (x86); kvmserver runs 64-bit x86 programs");
    CHECK(error_with(EM_ARM) == "x: is a 32-bit ELF (arm); kvmserver runs 64-bit x86 programs");
    CHECK(error_with(EM_X86_64) == "x: is a 32-bit ELF (x32); kvmserver runs 64-bit x86 programs");
}

TEST_CASE("hostile program headers") {
    CHECK(spoiled([](auto& e) { e.header.e_phentsize = 55; }) == "x: has program headers of 55 bytes instead of 56");
    CHECK(spoiled([](auto& e) { e.segments.clear(); }) == "x: has no program headers: nothing of it can be loaded");
    CHECK(spoiled([](auto& e) { e.header.e_phoff = ~0ull; }).find("truncated: the program headers begin at") == 3);
    CHECK(spoiled([](auto& e) { e.header.e_phoff = 0xbff; }) ==
          "x: truncated: the program headers end at byte 3183 but the file has 3072");
    ElfBuilder many;
    many.header.e_phnum = 0xffff;
    CHECK(error_for(many.raw()) == "x: has too many program headers (65535, at most 1170)");
    CHECK(spoiled([](auto& e) { e.segments[0].p_type = e.segments[1].p_type = PT_NOTE; }) ==
          "x: has no loadable segment: nothing of it can run");
}

TEST_CASE("hostile segments") {
    CHECK(spoiled([](auto& e) { e.segments[1].p_filesz = 0x1000; }) ==
          "x: truncated: segment 1 ends at byte 6144 but the file has 3072");
    CHECK(spoiled([](auto& e) {
              e.segments[1].p_offset = ~0xfffull | 0x800;
              e.segments[1].p_filesz = 0x1000;
          }) == "x: is damaged: segment 1 has 4096 bytes at offset 18446744073709549568");
    CHECK(spoiled([](auto& e) { e.segments[1].p_memsz = 0x100; }) ==
          "x: is damaged: segment 1 has more bytes in the file (1024) than in memory (256)");
    CHECK(spoiled([](auto& e) { e.segments[1].p_memsz = ~0ull; }).find("does not fit below") != std::string::npos);
    CHECK(spoiled([](auto& e) { e.segments[1].p_vaddr = layout::kUserMax + 0x800; }).find("does not fit below") !=
          std::string::npos);
    CHECK(spoiled([](auto& e) { e.segments[1].p_vaddr = 0xffff'ffff'8000'0800; }).find("does not fit below") !=
          std::string::npos);
    CHECK(spoiled([](auto& e) { e.segments[1].p_memsz = layout::kStackTop - 0x401800; }).find("does not fit below") !=
          std::string::npos);
    CHECK(
        spoiled([](auto& e) { e.segments[1].p_memsz = layout::kUserMax / 2; }, ET_DYN, 0).find("does not fit below") !=
        std::string::npos);
    CHECK(spoiled([](auto&) {}, ET_EXEC, 0x1000).find("segment 0 at 0x1000 is below 0x10000") == 3);
    CHECK(spoiled([](auto& e) { e.segments[0].p_align = 3; }) ==
          "x: is damaged: segment 0 has an alignment of 0x3, not a power of two");
    CHECK(spoiled([](auto& e) { e.segments[0].p_align = 1ull << 40; }).find("has an alignment of 0x10000000000") !=
          std::string::npos);
    CHECK(spoiled([](auto& e) { e.segments[1].p_vaddr += 8; }) ==
          "x: segment 1 at 0x401808 is not aligned with its file offset 0x800");
    CHECK(spoiled([](auto& e) { std::swap(e.segments[0], e.segments[1]); }) ==
          "x: is damaged: the segment at 0x400000 comes after the one at 0x401800");
    CHECK(spoiled([](auto& e) { e.segments[0].p_memsz = 0x1801; }) ==
          "x: is damaged: the segments at 0x400000 and 0x401800 overlap");
    CHECK(spoiled([](auto& e) { e.add(PT_DYNAMIC, PF_R, 0xc00, 0, 16, 16, 8); }) ==
          "x: truncated: the dynamic section ends at byte 3088 but the file has 3072");
}

TEST_CASE("segments without contents") {
    ElfBuilder builder;
    // Linkers give empty ones any offset.
    builder.add(PT_LOAD, PF_R | PF_W, 0x12345, 0x500000, 0, 0x1000, 0x200000);
    builder.add(PT_LOAD, PF_R | PF_W, 0x12345, 0x400000, 0, 0, 0);
    const ElfFile elf = parse_elf(builder.bytes(), "x");
    CHECK(elf.segments.size() == 3);
    CHECK(elf.high == 0x501000);
    CHECK(elf.alignment == 0x200000);
}

TEST_CASE("hostile entry points") {
    CHECK(spoiled([](auto& e) { e.header.e_entry = 0x401800; }).find("entry point 0x401800 is not in") !=
          std::string::npos);
    CHECK(spoiled([](auto& e) { e.header.e_entry = ~0ull; }).find("is not in an executable segment") !=
          std::string::npos);
    CHECK(spoiled([](auto& e) { e.header.e_entry = 0x400800; }).find("is not in an executable segment") !=
          std::string::npos);
    CHECK(spoiled([](auto& e) { e.header.e_entry = 0; }).find("is a shared library") != std::string::npos);
}

TEST_CASE("hostile interpreters") {
    const auto with = [](const std::string& path, std::uint64_t bytes) {
        return spoiled([&](auto& e) {
            e.text(0x500, path);
            e.add(PT_INTERP, PF_R, 0x500, 0, bytes, bytes, 1);
        });
    };
    CHECK(with("/lib/ld", 7) == "x: is damaged: its interpreter's path is not terminated");
    CHECK(with("/lib/ld", 0) == "x: is damaged: its interpreter's path is not terminated");
    CHECK(with("", 1) == "x: is damaged: its interpreter \"\" is not an absolute path");
    CHECK(with("ld\n.so", 7) == "x: is damaged: its interpreter \"ld\\x0a.so\" is not an absolute path");
    CHECK(with("/lib/ld", 0x10000).find("truncated: the interpreter's path ends at") == 3);
    CHECK(spoiled([](auto& e) {
              e.body.assign(0x8000, std::byte{'/'});
              e.add(PT_INTERP, PF_R, 0x500, 0, 0x7000, 0x7000, 1);
          }) == "x: is damaged: its interpreter's path is too long");
    CHECK(spoiled([](auto& e) {
              e.add(PT_INTERP, PF_R, ~0ull, 0, 16, 16, 1);
          }).find("is damaged: the interpreter's path has") == 3);

    // An interpreter's own is of no interest.
    ElfBuilder builder;
    builder.add(PT_INTERP, PF_R, 0x500, 0, 1, 1, 1);
    CHECK(parse_elf(builder.bytes(), "x", ElfUse::interpreter).interpreter.empty());
}

TEST_CASE("a file that shrinks while it is read") {
    const TempFolder temp;
    const auto path = temp.path / "program";
    write_whole(path, ElfBuilder().bytes());
    const UniqueFd fd = open_program_file(path.string());
    const FileSource source(fd.get(), "program");
    CHECK(parse_elf(source, "x").segments.size() == 2);
    REQUIRE(::truncate(path.c_str(), 80) == 0);
    CHECK(error_of([&] { parse_elf(source, "x"); }).find("truncated") != std::string::npos);
    REQUIRE(::truncate(path.c_str(), 0) == 0);
    CHECK(error_of([&] { parse_elf(source, "x"); }).find("not an ELF program") != std::string::npos);
}

TEST_CASE("scripts") {
    const auto read = [](const std::string& text) { return read_shebang(bytes_of(text), "x"); };
    const auto error = [&](const std::string& text) { return error_of([&] { read(text); }); };
    CHECK_FALSE(read(""));
    CHECK_FALSE(read("#"));
    CHECK_FALSE(read("\x7f"
                     "ELF"));
    CHECK(read("#!/bin/sh")->interpreter == "/bin/sh");
    CHECK(read("#!/bin/sh\necho")->argument.empty());
    CHECK(read("#! \t/usr/bin/env  node --flag \t\nx")->interpreter == "/usr/bin/env");
    CHECK(read("#! \t/usr/bin/env  node --flag \t\nx")->argument == "node --flag");
    CHECK(read("#!/bin/sh   \n")->argument.empty());
    CHECK(read(std::string("#!/bin/sh\0 x\n", 13))->interpreter == "/bin/sh");
    const std::string none = "x: is a script that names no interpreter after #!";
    CHECK(error("#!") == none);
    CHECK(error("#!\n/bin/sh") == none);
    CHECK(error("#! \t \n") == none);
    CHECK(error("#!/bin/sh\r\n").find("Windows line ends; its interpreter \"/bin/sh\\x0d\"") != std::string::npos);
    CHECK(error("#!/" + std::string(300, 'a')) == "x: is a script whose interpreter's path is too long");
    // As in Linux, 256 bytes are looked at.
    CHECK(read("#!/bin/sh " + std::string(300, 'a'))->argument == std::string(246, 'a'));
    CHECK(read("#!/" + std::string(200, 'a'))->interpreter.size() == 201);
}
