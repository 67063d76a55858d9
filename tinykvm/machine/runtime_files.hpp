// What a program may read without asking beside its own file and libraries: what its distribution ships for every
// program, and the home of the interpreter that runs it.
//
// Never what lies in the program's folder: data and secrets may be next to a program. Exceptions are what the runtime
// looks for by its own rules: the script itself, and of Node, Bun and Deno `package.json` and `node_modules` there and
// above.
#pragma once
#include <string>
#include <vector>

namespace tinykvm {

struct ProgramSpec; // machine/program.hpp

// Files and folders below `root` ("" for the host's own) that exist: shared libraries, name service, time zones,
// certificates, locales.
std::vector<std::string> system_files(const std::string& root = {});

// Those of the interpreter by the program's name, its prefix, its arguments and its environment (PYTHONPATH, NODE_PATH,
// GEM_PATH ...).
std::vector<std::string> interpreter_files(const ProgramSpec& program);

} // namespace tinykvm
