// Scripts: the "#!" line, read as Linux does (fs/binfmt_script.c).
#pragma once
#include <optional>
#include <string>

#include "tinykvm/elf/byte_source.hpp"

namespace tinykvm {

struct Shebang {
    std::string interpreter; // as written; may be relative to the working folder
    std::string argument;    // the rest of the line as one argument; empty when there is none
};

// nullopt when the file does not begin with "#!". Throws UserError when it does but names no usable interpreter.
// The program to run is then: interpreter, argument if any, path of the script, the script's arguments.
std::optional<Shebang> read_shebang(const ByteSource& source, const std::string& name);
std::optional<Shebang> read_shebang(std::span<const std::byte> bytes, const std::string& name);

} // namespace tinykvm
