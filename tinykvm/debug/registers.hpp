// The registers of a thread as gdb numbers them, and the description of them that it reads.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tinykvm/debug/target.hpp"

namespace tinykvm::debug {

// Which registers there are depends on the CPU that the program sees (Target::vector_components).
class RegisterMap {
public:
    explicit RegisterMap(std::uint64_t vector_components);
    std::size_t count() const { return registers_.size(); }
    std::size_t bytes(std::size_t number) const { return registers_[number].bytes; }
    std::size_t all_bytes() const; // of all of them
    // One register's bytes.
    std::vector<std::byte> get(const Registers& from, std::size_t number) const;
    // `value` has bytes(number).
    void set(Registers& to, std::size_t number, std::span<const std::byte> value) const;
    // target.xml, for qXfer:features:read.
    std::string description() const;
    static constexpr std::size_t kRip = 16, kRsp = 7;

private:
    enum class Place { general, selector, fs_base, gs_base, vector, float_part, tag_word };
    struct Register {
        std::string name, type, feature;
        std::size_t bytes = 8;
        Place place = Place::general;
        std::size_t at = 0;          // in ThreadRegisters or in the vector state
        std::size_t width = 0;       // number of bytes there, the others are zero; 0: as `bytes`
        std::uint64_t component = 0; // of XCR0, if the register is in use only with it
    };
    void add(Register r) { registers_.push_back(std::move(r)); }
    std::vector<Register> registers_;
};

} // namespace tinykvm::debug
