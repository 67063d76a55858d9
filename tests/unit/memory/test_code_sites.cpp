#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tests/catch.hpp"
#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/memory/code_stubs.hpp"

using namespace tinykvm;

namespace {

using Bytes = std::vector<unsigned char>;

// NOPs around, as a site is judged by what is near it.
std::vector<std::byte> among_nops(const Bytes& code) {
    std::vector<std::byte> all(128 + code.size() + 64, std::byte{0x90});
    std::memcpy(all.data() + 128, code.data(), code.size());
    return all;
}

std::vector<CodeSite> sites_in(const Bytes& code) {
    const auto all = among_nops(code);
    return find_code_sites(all, 0, all.size());
}

std::uint64_t target(const std::byte* jump, std::uint64_t at) {
    std::int32_t distance;
    std::memcpy(&distance, jump + 1, sizeof(distance));
    return at + kJumpBytes + static_cast<std::uint64_t>(std::int64_t{distance});
}

} // namespace

TEST_CASE("system call sites: the nearest instruction that a jump fits over, with all that lies between", "[sites]") {
    struct Case {
        const char* what;
        Bytes code;
        unsigned at, moved;
    };
    const Case cases[] = {
        {"mov eax; syscall", {0xb8, 1, 0, 0, 0, 0x0f, 0x05}, 0, 5},
        {"mov eax; mov rdx, rdi; syscall", {0xb8, 0x23, 1, 0, 0, 0x48, 0x89, 0xfa, 0x0f, 0x05}, 0, 8},
        {"mov eax; mov rdi, [rsp+8]; syscall", {0xb8, 1, 0, 0, 0, 0x48, 0x8b, 0x7c, 0x24, 8, 0x0f, 0x05}, 5, 5},
        {"mov rax, rdi; mov r9, [rsp+8]; syscall", {0x48, 0x89, 0xf8, 0x4c, 0x8b, 0x4c, 0x24, 8, 0x0f, 0x05}, 3, 5},
        {"mov rax, 1; syscall", {0x48, 0xc7, 0xc0, 1, 0, 0, 0, 0x0f, 0x05}, 0, 7},
        {"mov edi, [rsp+8] after a store; xor eax, eax; syscall",
         {0x48, 0x89, 0x54, 0x24, 0x10, 0x8b, 0x7c, 0x24, 8, 0x31, 0xc0, 0x0f, 0x05},
         0,
         11},
    };
    for (const Case& c : cases) {
        CAPTURE(c.what);
        const auto found = sites_in(c.code);
        REQUIRE(found.size() == 1);
        CHECK(found[0].at == 128 + c.at);
        CHECK(found[0].moved == c.moved);
        CHECK(std::memcmp(found[0].code.data(), c.code.data() + c.at, c.moved) == 0);
    }
}

TEST_CASE("CPUID sites: with the leaf loaded before it", "[sites]") {
    for (const Bytes& code :
         {Bytes{0xb8, 7, 0, 0, 0, 0x31, 0xc9, 0x0f, 0xa2}, Bytes{0xb8, 1, 0, 0, 0x80, 0x48, 0x89, 0xde, 0x0f, 0xa2}}) {
        const auto found = sites_in(code);
        REQUIRE(found.size() == 1);
        CHECK(found[0].at == 128);
        CHECK(found[0].kind == SiteKind::cpuid);
    }
    CHECK(sites_in({0xb8, 7, 0, 0, 0x12, 0x31, 0xc9, 0x0f, 0xa2}).empty()); // no leaf of a CPU
    CHECK(sites_in({0x48, 0x8b, 0x44, 0x24, 8, 0x0f, 0xa2}).empty());
}

TEST_CASE("system call sites: what cannot be moved, or is no call at all, stays", "[sites]") {
    struct Case {
        const char* what;
        Bytes code;
    };
    const Case cases[] = {
        {"the return from a signal handler, rax", {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05}},
        {"the return from a signal handler, eax", {0xb8, 15, 0, 0, 0, 0x0f, 0x05}},
        {"only short instructions near", {0xc3, 0x31, 0xc0, 0x0f, 0x05}},
        {"a branch between", {0xb8, 1, 0, 0, 0, 0x74, 0, 0x0f, 0x05}},
        {"relative to RIP", {0x48, 0x8b, 0x05, 1, 0, 0, 0, 0x0f, 0x05}},
        {"a call before", {0xe8, 0, 0, 0, 0, 0x0f, 0x05}},
        {"a number compared: cmpl $0x50f, 0x110(%rax)", {0x81, 0xb8, 0x10, 1, 0, 0, 0x0f, 0x05, 0, 0}},
        {"a store whose displacement looks like mov eax: movl $1, -0x48(%rbp)",
         {0xc7, 0x45, 0xb8, 1, 0, 0, 0x0f, 0x05, 0x90}},
        {"a system call before", {0xb8, 1, 0, 0, 0, 0xcd, 0x80, 0x0f, 0x05}},
        {"no number", {0x48, 0x8b, 0x7c, 0x24, 8, 0x0f, 0x05}},
        {"a number too large", {0xb8, 0, 0, 1, 0, 0x0f, 0x05}},
        {"too far",
         {0xb8, 1, 0, 0, 0, 0x48, 0x89, 0xfa, 0x48, 0x89, 0xfa, 0x48, 0x89, 0xfa, 0x48, 0x89, 0xfa, 0x0f, 0x05}},
    };
    for (const Case& c : cases) {
        CAPTURE(c.what);
        CHECK(sites_in(c.code).empty());
    }
    // A store is moved as the store it is.
    const auto both = sites_in({0x31, 0xc0, 0xc7, 0x45, 0xb8, 1, 0, 0, 0, 0x0f, 0x05});
    REQUIRE(both.size() == 1);
    CHECK(both[0].at == 130);
    CHECK(both[0].moved == 7);
}

TEST_CASE("system call sites: the jump of one never lies over another's call", "[sites]") {
    // Found by fuzzing: a CPUID at 35 and one at 47. Read from a byte later, A2 of the first begins
    // mov [0x48ffffffff909090], al, which the second's jump would replace: then the first is none any more, nor is
    // what its stub comes back to.
    const auto found =
        sites_in({0x00, 0xb8, 0x64, 0,    0,    0,    0x48, 0x8b, 0x64, 0,    0xb8, 1,    0,    0,    0x80, 0x48, 0x90,
                  0x90, 0x0f, 0x64, 0,    0,    0,    0x48, 0x8b, 0x64, 0,    0xb8, 1,    0,    0,    0x80, 0x48, 0x89,
                  0xde, 0x0f, 0xa2, 0x90, 0x90, 0x90, 0xff, 0xff, 0xff, 0xff, 0x48, 0x89, 0xde, 0x0f, 0xa2});
    REQUIRE(found.size() == 1);
    CHECK(found[0].at + found[0].moved == 128 + 35);
    // Side by side, both are.
    const auto both = sites_in({0xb8, 1, 0, 0, 0x80, 0x0f, 0xa2, 0xb8, 2, 0, 0, 0x80, 0x0f, 0xa2});
    REQUIRE(both.size() == 2);
    CHECK(both[1].at == 128 + 7);
}

TEST_CASE("system call sites: in data that looks like code there are none", "[sites]") {
    std::vector<std::byte> data(1 << 20);
    std::uint64_t state = 1;
    for (std::byte& b : data)
        b = static_cast<std::byte>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
    for (std::size_t at = 100; at + 2 < data.size(); at += 100)
        data[at] = std::byte{0x0f}, data[at + 1] = std::byte(at % 200 ? 0x05 : 0xa2);
    CHECK(find_code_sites(data, 0, data.size()).empty());
    CHECK(find_code_sites({}, 0, 0).empty());
}

TEST_CASE("system call sites: nearly all of the C library's", "[sites]") {
    std::string path;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* to) {
            if (std::strstr(info->dlpi_name, "libc.so"))
                *static_cast<std::string*>(to) = info->dlpi_name;
            return 0;
        },
        &path);
    REQUIRE_FALSE(path.empty());
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    REQUIRE(::fstat(file.get(), &info) == 0);
    // Found in pieces of a file as in one.
    const auto sites = find_code_sites(file.get(), 0, static_cast<std::uint64_t>(info.st_size), 10000);
    CHECK(sites.size() > 350);
    std::vector<std::byte> all(static_cast<std::size_t>(info.st_size));
    REQUIRE(::pread(file.get(), all.data(), all.size(), 0) == info.st_size);
    auto whole = find_code_sites(all, 0, all.size());
    std::erase_if(whole, [](const CodeSite& site) { return site.at % kPageSize > kPageSize - kJumpBytes; });
    REQUIRE(whole.size() == sites.size());
    for (std::size_t i = 0; i < sites.size(); ++i)
        CHECK(whole[i].at == sites[i].at);
}

TEST_CASE("code patches: a jump leads to a stub that comes back behind the call", "[sites]") {
    std::vector<std::byte> code(kPageSize, std::byte{0x90});
    const Bytes call{0xb8, 1, 0, 0, 0, 0x48, 0x89, 0xfa, 0x0f, 0x05, 0xc3};
    std::memcpy(code.data() + 128, call.data(), call.size());
    constexpr std::uint64_t kFileOffset = 0x3000, kShift = 0x7f0000000000, kStubs = kShift - 0x10000,
                            kEntry = 0x7ff000001234;
    auto sites = find_code_sites(code, 0, code.size());
    REQUIRE(sites.size() == 1);
    sites[0].at += kFileOffset;
    const CodePatches patches(sites, kShift, kStubs);
    const auto stubs = patches.stubs({kEntry, kEntry + 64});
    REQUIRE(stubs.size() == kPageSize);
    abi::StubPage head;
    std::memcpy(&head, stubs.data(), sizeof(head));
    CHECK(head.entry == kEntry);

    const auto original = code;
    patches.apply(code, kShift + kFileOffset);
    const std::uint64_t at = kShift + kFileOffset + 128;
    CHECK(code[128] == std::byte{0xe9});
    CHECK(std::memcmp(code.data() + 133, original.data() + 133, code.size() - 133) ==
          0); // the rest of it, and the call, stay
    const std::uint64_t stub = target(code.data() + 128, at);
    REQUIRE(stub == kStubs + abi::kStubBytes);
    const std::byte* bytes = stubs.data() + abi::kStubBytes;
    CHECK(std::memcmp(bytes, original.data() + 128, 8) == 0);
    std::int32_t behind, slot;
    std::memcpy(&behind, bytes + 8 + 3, 4);
    std::memcpy(&slot, bytes + 8 + 7 + 2, 4);
    CHECK(stub + 8 + 7 + static_cast<std::uint64_t>(std::int64_t{behind}) == at + 10);
    CHECK(stub + 8 + 13 + static_cast<std::uint64_t>(std::int64_t{slot}) == kStubs);

    // The way back, and only for the jump that the stub is for.
    const std::span<const std::byte, abi::kStubBytes> own(bytes, abi::kStubBytes);
    const auto replaced = replaced_by_jump(at, own, stub);
    REQUIRE(replaced);
    CHECK(std::memcmp(replaced->data(), original.data() + 128, kJumpBytes) == 0);
    CHECK_FALSE(replaced_by_jump(at + 1, own, stub));
    CHECK_FALSE(
        replaced_by_jump(at, std::span<const std::byte, abi::kStubBytes>(stubs.data(), abi::kStubBytes), kStubs));

    // A file that was changed after it was looked through keeps what it has.
    auto changed = original;
    changed[129] = std::byte{2};
    const auto as_it_was = changed;
    patches.apply(changed, kShift + kFileOffset);
    CHECK(changed == as_it_was);
}

TEST_CASE("system call sites: what is looked at of a file has an end", "[sites]") {
    char path[] = "/tmp/test_code_sites.XXXXXX";
    const UniqueFd file(::mkstemp(path));
    ::unlink(path);
    Bytes call(48, 0x90);
    std::copy_n(Bytes{0xb8, 1, 0, 0, 0, 0x0f, 0x05}.begin(), 7, call.begin() + 41);
    Bytes calls;
    for (int i = 0; i < 30000; ++i)
        calls.insert(calls.end(), call.begin(), call.end());
    REQUIRE(::write(file.get(), calls.data(), calls.size()) == static_cast<ssize_t>(calls.size()));
    CHECK(find_code_sites(file.get(), 0, calls.size(), 100).size() == 100);
    const auto sites = find_code_sites(file.get(), 0, calls.size(), 100000);
    CHECK(sites.size() > 16000);
    CHECK(sites.size() < 16385);
    for (const CodeSite& site : sites)
        CHECK(site.at % kPageSize <= kPageSize - kJumpBytes);
    REQUIRE(::ftruncate(file.get(), std::int64_t{1} << 40) == 0); // would take minutes
    CHECK(find_code_sites(file.get(), 4 << 20, std::uint64_t{1} << 40, 100).empty());
}
