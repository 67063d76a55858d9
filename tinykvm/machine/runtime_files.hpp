// Files that a program may read without a permission, in addition to its own file and libraries: those that the
// distribution ships for every program, and the home of the interpreter that runs it.
//
// The program's own folder is never among them, because data and secrets may lie next to a program. Exceptions are
// files that the runtime looks for by its own rules: the script itself, and for Node, Bun and Deno `package.json` and
// `node_modules` in that folder and above.
#pragma once
#include <string>
#include <vector>

namespace tinykvm {

struct ProgramSpec; // machine/program.hpp

// Files and folders that exist below `root` ("" for the host's own): shared libraries, name service, time zones,
// certificates, locales. The paths are returned without `root`.
std::vector<std::string> system_files(const std::string& root = {});

// Files and folders of the interpreter, found by the program's name, prefix, arguments and environment (PYTHONPATH,
// NODE_PATH, GEM_PATH ...).
std::vector<std::string> interpreter_files(const ProgramSpec& program);

} // namespace tinykvm
