// Environment variables that a restored program finds changed where they lie. Programs that look a variable up when
// they need it (getenv(3), Node's process.env, Rust's std::env) see the new value; those that have copied their
// environment at their start (Python's os.environ) do not.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "tinykvm/machine/machine.hpp"

namespace tinykvm {

// Puts `variables` ("NAME=VALUE", no NUL) into the memory of an image, before anything is made of it. Returns a line
// for each that could not be: there is no room for it, it is too long, or the program has put something else in its
// place.
std::vector<std::string> set_late_env(const MachineImage& image, Image& memory, std::span<const std::string> variables);

} // namespace tinykvm
