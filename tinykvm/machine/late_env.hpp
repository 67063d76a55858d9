// Late environment variables: their values are replaced in the memory of a restored program. Programs that look a
// variable up when they need it (getenv(3), Node's process.env, Rust's std::env) see the new value. Programs that
// copied their environment at start (Python's os.environ) do not.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "tinykvm/machine/machine.hpp"

namespace tinykvm {

// Writes `variables` ("NAME=VALUE", no NUL) into the memory of an image, before any clone is made. Returns a line for
// each variable that could not be set: the snapshot has no room for it, it is too long, or the program has overwritten
// its place. `copied_by`: the name of a program that copied its environment when it started; "": it did not. It does
// not see a value that differs from that of its boot, for which there is a line, too.
std::vector<std::string> set_late_env(const MachineImage& image, Image& memory, std::span<const std::string> variables,
                                      const std::string& copied_by = "");

} // namespace tinykvm
