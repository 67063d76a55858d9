// Finds the files that the ELF interpreter of a program will read, with the interpreter's own search rules.
//
// The result permits the program to read them, and shows missing libraries before the program boots. Only libraries
// that the files name (DT_NEEDED) are found, not those that a program opens later with dlopen.
#pragma once
#include <string>
#include <vector>

namespace tinykvm {

struct LibrarySearch {
    std::string cache = "/etc/ld.so.cache";
    std::string preload_file = "/etc/ld.so.preload";
    std::string musl_path_file = "/etc/ld-musl-x86_64.path";
    std::vector<std::string> folders = {
        "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"};
    std::string library_path; // LD_LIBRARY_PATH of the guest's environment
    std::string preload;      // LD_PRELOAD of the guest's environment
    std::string cwd;          // for relative paths; this process's own when empty
};

struct Library {
    std::string path;      // absolute, as the interpreter opens it
    std::string canonical; // without symbolic links, "." and ".."
    bool operator==(const Library&) const = default;
};

struct MissingLibrary {
    std::string name; // as given in the file that needs it
    std::string needed_by;
};

struct LibraryList {
    // The interpreter first, then libraries in the order of the search, variants for other CPUs included.
    std::vector<Library> found;
    std::vector<MissingLibrary> missing;
    // Existing files that the interpreter reads to find libraries.
    std::vector<std::string> configuration;
};

// Returns an empty list for a static program. Throws UserError when the program itself is not a valid ELF program.
LibraryList find_libraries(const std::string& program, const LibrarySearch& search = {});

// Throws UserError (not_found) with one line when a library is missing:
// "/opt/x: missing library libfoo.so.1 (needed by /opt/x); ...".
void require_libraries(const std::string& program, const LibraryList& list);

} // namespace tinykvm
