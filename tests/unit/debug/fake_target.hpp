// A program of two threads and two pages of memory.
#pragma once
#include <sys/mman.h>

#include <array>
#include <cstring>

#include "tinykvm/debug/target.hpp"

namespace tinykvm::debug::test {

class FakeTarget final : public Target {
public:
    static constexpr std::uint64_t kMemory = 0x10000;
    FakeTarget() {
        for (std::size_t i = 0; i < memory.size(); ++i)
            memory[i] = static_cast<std::byte>(i);
        for (Registers& r : values) {
            r.vector.assign(vector_bytes(components), {});
            r.general.rip = kMemory;
        }
    }
    std::vector<ThreadInfo> threads() override { return {{0x1a, "main"}, {0x1b, "other"}}; }
    bool registers(std::uint32_t thread, Registers& out) override {
        if (thread != 0x1a && thread != 0x1b)
            return false;
        out = values[thread - 0x1a];
        return true;
    }
    bool set_registers(std::uint32_t thread, const Registers& given) override {
        if (thread != 0x1a && thread != 0x1b)
            return false;
        values[thread - 0x1a] = given;
        return true;
    }
    std::uint64_t vector_components() const override { return components; }
    bool within(std::uint64_t at, std::size_t bytes) const {
        return at >= kMemory && bytes <= memory.size() && at - kMemory <= memory.size() - bytes;
    }
    bool read(std::uint64_t at, std::span<std::byte> to) override {
        if (!within(at, to.size()))
            return false;
        std::memcpy(to.data(), memory.data() + (at - kMemory), to.size());
        return true;
    }
    bool write(std::uint64_t at, std::span<const std::byte> from) override {
        if (!within(at, from.size()))
            return false;
        std::memcpy(memory.data() + (at - kMemory), from.data(), from.size());
        return true;
    }
    std::vector<MemoryRange> ranges() override {
        return {{kMemory, kMemory + memory.size(), PROT_READ | PROT_WRITE, {}, 0, false}};
    }
    void for_each_page(std::uint64_t begin, std::uint64_t end, const std::function<void(std::uint64_t)>& fn) override {
        for (std::uint64_t page = begin; page < end; page += 4096)
            fn(page);
    }
    std::uint32_t process() const override { return 0x1a; }
    std::vector<std::byte> auxiliary_vector() override { return std::vector<std::byte>(32, std::byte{'}'}); }
    std::string program() override { return "/bin/fake"; }
    std::string arguments() const override { return "fake"; }

    std::array<std::byte, 8192> memory;
    std::array<Registers, 2> values;
    std::uint64_t components = kSse | 1 | kAvx;
};

} // namespace tinykvm::debug::test
