// Machines with a host that is nobody: what they send stays in their buffers, what they get is put there by hand.
#pragma once
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/kvm/probe.hpp"
#include "tinykvm/machine/machine.hpp"
#include "tinykvm/machine/restore.hpp"

namespace tinykvm::test {

inline const kvm::Kvm& kvm_device() {
    static const auto device = [] {
        try {
            return std::optional(kvm::Kvm::open());
        } catch (const UserError& error) {
            WARN(error.what());
            return std::optional<kvm::Kvm>();
        }
    }();
    if (!device)
        FAIL("no KVM");
    return *device;
}

// How many of `n` random cases are tried: a 25th in the emulated host, where each takes forty times as long, and a
// fifth in long runs. Tests of what is alike on all kinds of host are tagged [alike], and left to long runs there.
inline unsigned cases(unsigned n) {
    const unsigned part = !std::getenv("E2E_SLOWNESS") ? 1 : kvmserver::test::all_tests() ? 5 : 25;
    return (n + part - 1) / part;
}

inline std::vector<ResetStrategy> strategies() {
    if (kvm::host_kind(kvm_device()).dirty_bits)
        return {ResetStrategy::working_set, ResetStrategy::dirty_bits};
    return {ResetStrategy::working_set};
}

inline Permissions server_permissions() {
    Permissions p;
    p.read = {"/"};
    p.listen = {NetRule{}};
    return p;
}

inline std::string guest_path(const std::string& name) {
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / ("guest_" + name)).string();
}

class FakeHost final : public MachineHost {
public:
    int bind(ListenerState&) override { return 0; }
    int listen(ListenerState&, int) override { return 0; }
    void unlisten(std::uint32_t) override {}
    BoundSocket take_bound(std::uint32_t) override { return {}; }
    void flush(Machine& machine, std::uint32_t slot) override {
        ConnView view;
        REQUIRE(slot < abi::kMaxConns);
        if (machine.connections().view(slot, view))
            ++flushes;
    }
    void poll(Machine&) override {}
    void note(const std::string& line) override {
        if (notes.size() < 1000)
            notes.push_back(line);
    }
    bool should_stop() override { return host_mono_ns() >= deadline; }
    void allow(double seconds) { deadline = host_mono_ns() + static_cast<std::uint64_t>(seconds * 1e9); }

    std::vector<std::string> notes;
    std::uint64_t deadline = ~std::uint64_t{0};
    int flushes = 0;
};

// What machines of a test share.
struct World {
    std::unique_ptr<Policy> policy;
    MachineEnv env;
    FakeHost host;

    explicit World(Permissions permissions = {}, std::uint64_t memory = 256 << 20) {
        permissions.implied_read.push_back(std::filesystem::read_symlink("/proc/self/exe").parent_path().string());
        policy = std::make_unique<Policy>(permissions);
        env.kvm = &kvm_device();
        env.kind = kvm::host_kind(kvm_device());
        env.cpu = kvm::guest_cpu("", env.kind.xsave);
        env.policy = policy.get();
        env.limits.memory = memory;
        env.limits.request_memory = 24 << 20;
        env.limits.address_space = 4ull << 30;
        env.options.verbose = true;
    }

    std::unique_ptr<Machine> boot(const std::string& guest, std::vector<std::string> args) {
        ProgramSpec program;
        program.path = program.name = guest_path(guest);
        program.args = {program.path};
        program.args.insert(program.args.end(), args.begin(), args.end());
        program.cwd = "/";
        host.notes.clear();
        return Machine::boot(env, program, host);
    }
    // Boots a server, until it waits for its first connection.
    std::shared_ptr<MachineImage> image_of(const std::string& guest) {
        const auto machine = boot(guest, {});
        host.allow(60);
        const Stop stop = machine->run();
        CAPTURE(stop.report, stop.status, host.notes);
        REQUIRE(stop.kind == StopKind::waiting);
        REQUIRE(machine->wait().listening);
        return std::move(*machine).into_image();
    }
    // Boots and runs to the end.
    Stop run(const std::string& guest, std::vector<std::string> args, double seconds = 20) {
        const auto machine = boot(guest, std::move(args));
        host.allow(seconds);
        return machine->run();
    }
};

// Standard streams of this process for a while: a hostile guest may write to them.
class QuietStreams {
public:
    QuietStreams() {
        const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
        REQUIRE(null >= 0);
        for (int fd = 0; fd < 3; ++fd) {
            saved_[fd] = ::fcntl(fd, F_DUPFD_CLOEXEC, 10);
            ::dup2(null, fd);
        }
        ::close(null);
    }
    ~QuietStreams() {
        for (int fd = 0; fd < 3; ++fd) {
            ::dup2(saved_[fd], fd);
            ::close(saved_[fd]);
        }
    }
    QuietStreams(const QuietStreams&) = delete;
    QuietStreams& operator=(const QuietStreams&) = delete;

private:
    int saved_[3];
};

// A connection's life from the client's side.
inline std::uint32_t connect_client(Machine& machine, std::string_view bytes) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(80);
    const std::span peer(reinterpret_cast<const std::uint8_t*>(&address), sizeof(address));
    const auto slot = machine.connections().offer(0, peer, peer);
    REQUIRE(slot);
    ConnView view;
    REQUIRE(machine.connections().view(*slot, view));
    std::vector<iovec> room;
    REQUIRE(machine.connections().rx_ranges(*slot, view, room));
    REQUIRE(!room.empty());
    REQUIRE(room[0].iov_len >= bytes.size());
    std::memcpy(room[0].iov_base, bytes.data(), bytes.size());
    machine.connections().received(*slot, view, static_cast<std::uint32_t>(bytes.size()));
    return *slot;
}
inline std::string take_reply(Machine& machine, std::uint32_t slot) {
    ConnView view;
    REQUIRE(machine.connections().view(slot, view));
    std::vector<iovec> sent;
    REQUIRE(machine.connections().tx_ranges(slot, view, sent));
    std::string out;
    for (const iovec& run : sent)
        out.append(static_cast<const char*>(run.iov_base), run.iov_len);
    machine.connections().sent(slot, view, view.tx_pending());
    return out;
}

} // namespace tinykvm::test
