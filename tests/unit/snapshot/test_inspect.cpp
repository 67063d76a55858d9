#include "src/snapshot/cpu_check.hpp"
#include "src/snapshot/inspect.hpp"
#include "src/snapshot/writer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/matchers.hpp"
#include "tests/unit/snapshot/sample_state.hpp"
#include "tinykvm/base/text.hpp"

using namespace kvmserver;
using test::Contains;
using test::EndsWith;
using tinykvm::CpuState;

TEST_CASE("a CPU can run what it made itself") {
    const CpuState cpu = test::this_cpu();
    CHECK(compare_cpu(cpu, cpu).compatible());
    CHECK(compare_cpu(cpu, cpu).text().empty());
    CHECK(compare_cpu({}, cpu).compatible());
    CHECK_FALSE(compare_cpu(cpu, {}).compatible());
}

TEST_CASE("missing CPU features are named") {
    CpuState host;
    host.xcr0 = 0xe7;
    host.cpuid = {{1, 0, 0, 0, 0, 0x16f83203, 0x078bfbff},
                  {7, 0, 1, 0, 0xd01b2b08 | 1u << 16, 0, 0},
                  {0xd, 2, 1, 256, 576, 0, 0},
                  {0xd, 9, 1, 8, 2688, 0, 0},
                  {0xd, 5, 1, 64, 1088, 0, 0},
                  {0xd, 6, 1, 512, 1152, 0, 0},
                  {0xd, 7, 1, 1024, 1664, 0, 0}};
    CpuState snapshot = host;
    SECTION("one") {
        host.cpuid[1].ebx &= ~(1u << 16);
        CHECK(compare_cpu(snapshot, host).text() == "needs CPU feature avx512f");
        CHECK(compare_cpu(host, snapshot).compatible());
    }
    SECTION("without a name") {
        snapshot.cpuid[1].edx |= 1u << 7;
        CHECK(compare_cpu(snapshot, host).text() == "needs CPU feature cpuid-7.0-edx-7");
    }
    SECTION("what only a kernel can use does not count") {
        snapshot.cpuid[0].ecx |= 1u << 31 | 1u << 21 | 1u << 17 | 1u << 27; // hypervisor, x2apic, pcid, osxsave
        snapshot.cpuid[1].edx |= 1u << 26;
        CHECK(compare_cpu(snapshot, host).compatible());
    }
    SECTION("vector state") {
        host.xcr0 = 7;
        CHECK(compare_cpu(snapshot, host).text() == "needs CPU feature avx-512-state");
        snapshot.xcr0 |= 1u << 9;
        CHECK(compare_cpu(snapshot, host).text() == "needs CPU features avx-512-state, pkru-state");
        host.xcr0 = snapshot.xcr0;
        CHECK(compare_cpu(snapshot, host).compatible());
        host.cpuid[3].ebx = 2432;
        CHECK(compare_cpu(snapshot, host).text() == "this CPU saves pkru state in another place");
    }
}

TEST_CASE("levels of x86-64") {
    CHECK(cpu_level({}) == "x86-64");
    CpuState cpu;
    cpu.cpuid = {{1, 0, 0, 0, 0, 1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23, 0},
                 {0x80000001, 0, 0, 0, 0, 1, 0}};
    CHECK(cpu_level(cpu) == "x86-64-v2");
    cpu.cpuid[0].ecx |= 1u << 12 | 1u << 22 | 1u << 26 | 1u << 28 | 1u << 29;
    cpu.cpuid[1].ecx |= 1u << 5;
    cpu.cpuid.push_back({7, 0, 1, 0, 1u << 3 | 1u << 5 | 1u << 8, 0, 0});
    CHECK(cpu_level(cpu) == "x86-64-v3");
    cpu.cpuid[2].ebx |= 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
    CHECK(cpu_level(cpu) == "x86-64-v4");
}

TEST_CASE("inspect names what a snapshot holds") {
    const test::TempFolder folder;
    const auto path = folder / "app.snap";
    auto state = test::sample_state(300);
    state.permissions.all = false;
    write_snapshot(path, state, test::make_memory(300), std::vector<std::uint32_t>{5, 6, 7, 8});
    const auto reader = SnapshotReader::open(path);
    const std::string text = describe(reader);
    for (const char* part :
         {"app.snap, ", "format 1, guest kernel ABI 7 (01080f161d24)", "2025-10-09T08:53:20Z",
          "program      /usr/bin/prog\n", "arguments    prog --x \"a b\" \"\" \"\\xff\\xfe bytes\" caf\xc3\xa9\n",
          "folder       /work\n", "environment  PATH HOME\n",
          "permissions  read /a /b; write /w; env LC_*; connect localhost:5432; listen "
          ":8080; volume /host:/guest:wx\n",
          "listeners    127.0.0.1:8080 unix:/tmp/s\n", "threads      11\n", "image 1.2 MiB, stored ", "in 1 chunks\n",
          "handle       4 file /etc/passwd\n", "handle       6 memfd shm\n", "CPU          x86-64 ("})
        CHECK_THAT(text, Contains(part));
    CHECK(text.find("compatible") == std::string::npos);
    CHECK_THAT(describe(reader, state.cpu), EndsWith("\ncompatible: yes\n"));
    CHECK_THAT(describe(reader, CpuState{}), Contains("\ncompatible: no: needs CPU features cpuid-1") ||
                                                 Contains("\ncompatible: no: needs CPU features "));

    const auto facts = describe_json(reader, state.cpu);
    CHECK(facts["compatible"] == true);
    CHECK(facts["memory"]["image_bytes"] == 300 * 4096);
    const auto& memory = facts["memory"];
    CHECK(memory["stored_raw_bytes"].get<std::uint64_t>() + memory["zero_bytes"].get<std::uint64_t>() +
              memory["duplicate_bytes"].get<std::uint64_t>() ==
          300 * 4096);
    CHECK(facts["permissions"]["volumes"][0]["guest"] == "/guest");
    CHECK_NOTHROW(facts.dump());
}

TEST_CASE("names in a file cannot drive the terminal") {
    const test::TempFolder folder;
    auto state = test::sample_state(4);
    const std::string evil = "\x1b]0;x\x07\r\n\xc2\x9b\xff";
    state.program = {evil, {evil}, {evil}, evil};
    state.permissions.read = {evil};
    state.permissions.connect = {{evil, 1}};
    state.handles[0].path = evil;
    state.listeners[1].address = {1, 0, 0, 0x1b, '[', 'm'};
    write_snapshot(folder / "a", state, test::make_memory(4), {});
    const auto reader = SnapshotReader::open(folder / "a");
    for (const std::string& text : {describe(reader), describe_json(reader).dump()})
        for (const char c : text) {
            const auto byte = static_cast<unsigned char>(c);
            CHECK((byte == '\n' || (byte >= 0x20 && byte < 0x7f)));
        }
    CHECK_THAT(describe(reader), Contains("unix:@\\x1b[m"));
}

TEST_CASE("text") {
    CHECK(tinykvm::is_utf8("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"));
    for (const char* bad :
         {"\x80", "\xc1\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8", "\xc3", "\xe2\x82"})
        CHECK_FALSE(tinykvm::is_utf8(bad));
    CHECK(tinykvm::from_hex("00ff") == std::vector<std::uint8_t>{0, 255});
    CHECK_FALSE(tinykvm::from_hex("0"));
    CHECK_FALSE(tinykvm::from_hex("0A"));
}
