#include "tests/unit/snapshot/sample_state.hpp"

#include <cpuid.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace kvmserver::test {

using namespace tinykvm;

CpuState this_cpu() {
    CpuState cpu;
    unsigned a, b, c, d;
    const auto add = [&](std::uint32_t function, std::uint32_t index) {
        if (__get_cpuid_count(function, index, &a, &b, &c, &d))
            cpu.cpuid.push_back({function, index, function == 1 ? 0u : 1u, a, b, c, d});
    };
    for (const std::uint32_t function : {0u, 1u, 0x80000000u, 0x80000001u})
        add(function, 0);
    for (std::uint32_t index = 0; index < 2; ++index)
        add(7, index);
    for (std::uint32_t index = 0; index < 20; ++index)
        add(0xd, index);
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    cpu.xcr0 = std::uint64_t{d} << 32 | a;
    return cpu;
}

static std::vector<std::uint8_t> loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::vector<std::uint8_t> bytes(sizeof address);
    std::memcpy(bytes.data(), &address, sizeof address);
    return bytes;
}

MachineState sample_state(std::uint32_t frames) {
    MachineState s;
    s.guest_abi = 7;
    for (std::size_t i = 0; i < s.guest_kernel_digest.size(); ++i)
        s.guest_kernel_digest[i] = static_cast<std::uint8_t>(i * 7 + 1);
    s.entry_mode = 1;
    s.page_table_root = 0x1000;
    s.frames = frames;
    s.free_frames = {{2, 1}, {frames - 1, 1}};
    s.working_set = {{1, 1}, {0, frames}};
    s.random_at = 0x7feff000fff0;
    s.regions = {{0x400000, 0x500000, 5, 1, "/usr/bin/prog"},
                 {0x7fe000000000, 0x7fe000010000, 3, 2, ""},
                 {0x7feff0000000, 0x7feff0010000, 3, 4, "[stack]"}};
    s.brk_begin = 0x600000;
    s.brk_end = 0x621000;
    s.mono_ns = 0xfedcba9876543210;
    s.boot_ns = 0xfedcba9876543211;
    s.clock_continues = true;
    s.fork = tinykvm::ForkPolicy::follow;
    s.real_ns = 1'760'000'000'123'456'789;
    s.threads = 11;
    s.cpu = {0x2e7, {{1, 0, 0, 0x806f8, 2, 0x80000000, 4}, {7, 1, 1, 0xffffffff, 6, 7, 8}}};
    s.listeners = {{0, AF_INET, loopback(8080)}, {1, AF_UNIX, {1, 0, '/', 't', 'm', 'p', '/', 's', 0}}};
    HandleState file;
    file.number = 4;
    file.kind = HandleKind::file;
    file.path = "/etc/passwd";
    file.flags = 0x8000;
    file.identity = {0xfd00000001, 1234567, 890, -1};
    HandleState socket;
    socket.number = 5;
    socket.kind = HandleKind::socket;
    socket.family = AF_INET;
    socket.type = SOCK_STREAM;
    socket.protocol = -6;
    HandleState memfd;
    memfd.number = 6;
    memfd.kind = HandleKind::memfd;
    memfd.path = "shm";
    memfd.content = {0, 1, 2, 255, 254};
    memfd.memory_file = {{0640, 3, -1, 1'760'000'000'123'456'789}};
    s.handles = {file, socket, memfd};
    s.program = {
        "/usr/bin/prog", {"prog", "--x", "a b", "", "\xff\xfe bytes", "caf\xc3\xa9"}, {"PATH", "HOME"}, "/work"};
    s.permissions.all = true;
    s.permissions.read = {"/a", "/b"};
    s.permissions.write = {"/w"};
    s.permissions.env = {"LC_*"};
    s.permissions.connect = {{"localhost", 5432}};
    s.permissions.listen = {{"", 8080}};
    s.permissions.volumes = {{"/host", "/guest", false, true, true}};
    s.permissions.implied_read = {"/lib64/ld-linux-x86-64.so.2"};
    s.limits.boot_seconds = 1.25;
    s.limits.request_seconds = 0.1;
    s.limits.request_total_seconds = 2.5;
    s.limits.request_cpu_seconds = 0.5;
    s.limits.memory = 1ull << 40;
    s.limits.address_space = 1ull << 41;
    s.limits.request_memory = 3;
    s.limits.keep_memory = 4;
    s.limits.request_arena = 6;
    s.limits.open_files = 5;
    return s;
}

} // namespace kvmserver::test
