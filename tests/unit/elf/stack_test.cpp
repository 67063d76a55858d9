#include "tinykvm/elf/stack.hpp"

#include <map>

#include "tests/catch.hpp"
#include "tests/unit/elf/support.hpp"
#include "tinykvm/abi/layout.hpp"

using namespace tinykvm;
using namespace elf_test;

namespace {

constexpr std::uint64_t kTop = layout::kStackTop;

// Reads a stack as a C library's start code does.
struct Reader {
    explicit Reader(const InitialStack& s) : stack(s), at(s.rsp) {
        REQUIRE(stack.rsp + stack.bytes.size() == kTop);
        const std::uint64_t argc = next();
        for (std::uint64_t i = 0; i < argc; ++i)
            args.push_back(text(next()));
        REQUIRE(next() == 0);
        while (const std::uint64_t p = next())
            env.push_back(text(p));
        CHECK(at == stack.auxv_begin);
        while (const std::uint64_t type = next())
            REQUIRE(aux.emplace(type, next()).second);
        REQUIRE(next() == 0);
        CHECK(at == stack.auxv_end);
    }
    std::uint64_t next() {
        std::uint64_t word;
        REQUIRE(at + 8 <= kTop);
        std::memcpy(&word, &stack.bytes[at - stack.rsp], sizeof word);
        at += 8;
        return word;
    }
    std::string text(std::uint64_t address) {
        REQUIRE(address >= stack.rsp);
        REQUIRE(address < kTop);
        return reinterpret_cast<const char*>(&stack.bytes[address - stack.rsp]);
    }
    const InitialStack& stack;
    std::uint64_t at;
    std::vector<std::string> args, env;
    std::map<std::uint64_t, std::uint64_t> aux;
};

} // namespace

TEST_CASE("what a program finds on its stack") {
    StackInput input;
    input.args = {"server", "--port", "", "80 80"};
    input.env = {"A=1", "PATH=/bin"};
    input.execfn = "/opt/server";
    for (std::size_t i = 0; i < 16; ++i)
        input.random[i] = static_cast<std::byte>(i + 1);
    input.phdr = 0x400040;
    input.phnum = 9;
    input.interpreter_base = 0x7000'0000;
    input.entry = 0x400400;
    input.uid = input.euid = 1000;
    input.gid = input.egid = 100;
    input.hwcap = 0xbfebfbff;
    input.hwcap2 = 2;
    input.vdso = layout::kVdso;
    input.minsigstksz = 3632;
    const InitialStack stack = build_stack(input, GuestVirt(kTop), 1 << 20);
    CHECK(stack.rsp % 16 == 0);
    Reader reader(stack);
    CHECK(reader.args == input.args);
    CHECK(reader.env == input.env);
    const std::uint64_t random = reader.aux.at(AT_RANDOM);
    CHECK(random == stack.random_at);
    CHECK(random % 16 == 0);
    CHECK(std::memcmp(&stack.bytes[random - stack.rsp], input.random.data(), 16) == 0);
    CHECK(reader.text(reader.aux.at(AT_EXECFN)) == "/opt/server");
    CHECK(reader.text(reader.aux.at(AT_PLATFORM)) == "x86_64");
    for (const std::uint64_t type : {AT_RANDOM, AT_EXECFN, AT_PLATFORM})
        reader.aux.erase(type);
    const std::map<std::uint64_t, std::uint64_t> expected = {{AT_PHDR, 0x400040},
                                                             {AT_PHENT, 56},
                                                             {AT_PHNUM, 9},
                                                             {AT_PAGESZ, 4096},
                                                             {AT_BASE, 0x7000'0000},
                                                             {AT_FLAGS, 0},
                                                             {AT_ENTRY, 0x400400},
                                                             {AT_UID, 1000},
                                                             {AT_EUID, 1000},
                                                             {AT_GID, 100},
                                                             {AT_EGID, 100},
                                                             {AT_SECURE, 0},
                                                             {AT_HWCAP, 0xbfebfbff},
                                                             {AT_HWCAP2, 2},
                                                             {AT_CLKTCK, 100},
                                                             {AT_SYSINFO_EHDR, layout::kVdso},
                                                             {51, 3632}};
    CHECK(reader.aux == expected);

    const auto range = [&](std::uint64_t begin, std::uint64_t end) {
        return std::string(reinterpret_cast<const char*>(&stack.bytes[begin - stack.rsp]), end - begin);
    };
    CHECK(range(stack.args_begin, stack.args_end) == std::string("server\0--port\0\00080 80\0", 21));
    CHECK(range(stack.env_begin, stack.env_end) == std::string("A=1\0PATH=/bin\0", 14));
}

TEST_CASE("room for values that come later") {
    StackInput input;
    input.env = {"A=1"};
    input.late_env = {"TOKEN=", "COLOUR=red"};
    const InitialStack stack = build_stack(input, GuestVirt(kTop), 1 << 20);
    CHECK(Reader(stack).env == std::vector<std::string>{"A=1", "TOKEN=", "COLOUR=red"});
    REQUIRE(stack.late_env.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
        const std::byte* at = &stack.bytes[stack.late_env[i] - stack.rsp];
        CHECK(std::memcmp(at, input.late_env[i].c_str(), input.late_env[i].size() + 1) == 0);
        CHECK(std::all_of(at + input.late_env[i].size(), at + kLateEnvBytes,
                          [](std::byte b) { return b == std::byte{0}; }));
    }
    CHECK(std::max(stack.late_env[0], stack.late_env[1]) - std::min(stack.late_env[0], stack.late_env[1]) ==
          kLateEnvBytes);
    input.late_env = {"A=" + std::string(kLateEnvBytes - 2, 'x')};
    CHECK_THROWS_AS(build_stack(input, GuestVirt(kTop), 1 << 20), UserError);
    input.late_env[0].pop_back();
    CHECK_NOTHROW(build_stack(input, GuestVirt(kTop), 1 << 20));
}

TEST_CASE("the stack is aligned whatever it holds") {
    for (std::size_t args = 0; args < 5; ++args)
        for (std::size_t env = 0; env < 3; ++env)
            for (std::size_t length = 0; length < 18; ++length) {
                StackInput input;
                input.args.assign(args, std::string(length, 'a'));
                input.env.assign(env, "E=" + std::string(length, 'e'));
                const InitialStack stack = build_stack(input, GuestVirt(kTop), 8192);
                REQUIRE(stack.rsp % 16 == 0);
                const Reader reader(stack);
                REQUIRE(reader.args.size() == std::max<std::size_t>(args, 1));
                REQUIRE(reader.env == input.env);
                REQUIRE_FALSE(reader.aux.contains(AT_SYSINFO_EHDR));
            }
}

TEST_CASE("a stack that is too small") {
    StackInput input;
    input.args = {"x", std::string(100'000, 'a')};
    CHECK(error_of([&] { build_stack(input, GuestVirt(kTop), 65536); }).find("arguments and environment need 10") == 0);
    CHECK_NOTHROW(build_stack(input, GuestVirt(kTop), 128 << 10));
    input.args[1] = std::string("a\0b", 3);
    CHECK(error_of([&] { build_stack(input, GuestVirt(kTop), 65536); }) == "argument 1 contains a NUL byte");
    input.args.clear();
    input.env = {std::string("A\0", 2)};
    CHECK(error_of([&] { build_stack(input, GuestVirt(kTop), 65536); }) ==
          "environment variable 0 contains a NUL byte");
    input.env.clear();
    CHECK_FALSE(error_of([&] { build_stack(input, GuestVirt(kTop), 0); }).empty());
}

TEST_CASE("the program's part of the auxiliary vector") {
    StackInput input;
    input.describe(parse_elf(ElfBuilder(ET_DYN, 0).bytes(), "x"), layout::kPieBase);
    CHECK(input.phdr == layout::kPieBase + 64);
    CHECK(input.phnum == 2);
    CHECK(input.entry == layout::kPieBase + 0x400);
}
