// The files that the ELF interpreter of a program will read, found as it would find them.
//
// Used to permit reading them without asking, and to say which library is missing before anything boots.
// Only what the files themselves name (DT_NEEDED) is found, not what a program opens later with dlopen.
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
    std::string name; // as the file that needs it says
    std::string needed_by;
};

struct LibraryList {
    // The interpreter first, then libraries in the order of the search, variants for other CPUs included.
    std::vector<Library> found;
    std::vector<MissingLibrary> missing;
    // Files that the interpreter reads to find libraries, as far as they exist.
    std::vector<std::string> configuration;
};

// A static program gives an empty list. Throws UserError when the program itself is no sound ELF program.
LibraryList find_libraries(const std::string& program, const LibrarySearch& search = {});

// Throws UserError (not_found) with one line when a library is missing:
// "/opt/x: missing library libfoo.so.1 (needed by /opt/x); ...".
void require_libraries(const std::string& program, const LibraryList& list);

} // namespace tinykvm
