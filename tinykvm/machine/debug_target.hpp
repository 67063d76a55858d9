// A stopped machine as debuggers and core files see it.
#pragma once
#include "tinykvm/debug/target.hpp"
#include "tinykvm/machine/machine.hpp"

namespace tinykvm {

// For a machine whose run() has returned, or that calls its Debugger or MachineEnv::on_killed. Must not outlive it.
class DebugTarget final : public debug::Target {
public:
    explicit DebugTarget(Machine& machine) : m_(machine) {}

    std::vector<debug::ThreadInfo> threads() override;
    bool registers(std::uint32_t thread, debug::Registers& out) override;
    bool set_registers(std::uint32_t thread, const debug::Registers& values) override;
    std::uint64_t vector_components() const override;
    bool read(std::uint64_t at, std::span<std::byte> to) override;
    bool write(std::uint64_t at, std::span<const std::byte> from) override;
    std::vector<debug::MemoryRange> ranges() override;
    void for_each_page(std::uint64_t begin, std::uint64_t end, const std::function<void(std::uint64_t)>& fn) override;
    std::uint32_t process() const override;
    std::vector<std::byte> auxiliary_vector() override;
    std::string program() override;
    std::string arguments() const override;

private:
    struct Place { // addresses of what the guest kernel keeps of a thread
        std::uint64_t registers = 0, fs_base = 0, gs_base = 0, vector = 0;
    };
    const abi::DebugTable* table();
    // Calls fn(address, number) for each live thread until it returns true.
    void for_each_thread(const std::function<bool(std::uint64_t, std::uint32_t)>& fn);
    bool place_of(std::uint32_t thread, Place& out);
    std::uint64_t program_rip(std::uint64_t rip);
    void copy_vector(std::span<std::byte> own, std::span<std::byte> shown, bool to_own) const;
    debug::MemoryRange file_range(std::uint64_t begin, const Region& region, std::uint64_t first);

    Machine& m_;
    abi::DebugTable table_{};
    bool looked_ = false, known_ = false;
};

} // namespace tinykvm
