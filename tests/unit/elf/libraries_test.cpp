#include "tinykvm/elf/libraries.hpp"

#include <array>
#include <cstdio>
#include <memory>
#include <set>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/unit/elf/support.hpp"
#include "tinykvm/elf/ld_cache.hpp"

using namespace tinykvm;
using namespace elf_test;

namespace {

namespace fs = std::filesystem;

struct FromLoader {
    std::set<std::string> found; // canonical paths
    std::set<std::string> missing;
};

// What the system's own ELF interpreter says about a program.
FromLoader ask_loader(const std::string& program) {
    FromLoader result;
    const std::string command = "LD_TRACE_LOADED_OBJECTS=1 /lib64/ld-linux-x86-64.so.2 " + program + " 2>/dev/null";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
    REQUIRE(pipe);
    std::array<char, 4096> line;
    while (std::fgets(line.data(), line.size(), pipe.get())) {
        std::istringstream words(line.data());
        std::string name, arrow, path;
        words >> name >> arrow >> path; // "name => path (0x...)", "name => not found", "path (0x...)"
        if (arrow == "=>" && path == "not")
            result.missing.insert(name);
        else if (arrow == "=>" && path.starts_with('/'))
            result.found.insert(fs::canonical(path).string());
        else if (name.starts_with('/'))
            result.found.insert(fs::canonical(name).string());
    }
    return result;
}

std::set<std::string> names(const LibraryList& list) {
    std::set<std::string> set;
    for (const Library& library : list.found)
        set.insert(library.canonical);
    return set;
}

std::vector<std::string> opened(const LibraryList& list, std::size_t skip) {
    std::vector<std::string> paths;
    for (const Library& library : list.found)
        if (skip > 0)
            --skip;
        else
            paths.push_back(library.path);
    return paths;
}

// Hand-made programs and libraries in a folder, with nothing of the system's to be found.
struct Tree {
    Tree() {
        root = temp.path.string();
        search.cache = root + "/ld.so.cache";
        search.preload_file = root + "/ld.so.preload";
        search.musl_path_file = root + "/ld-musl.path";
        search.folders = {root + "/default"};
        interpreter("ld.so");
    }
    void interpreter(const std::string& name) {
        loader = root + "/" + name;
        write_whole(loader, ElfBuilder(ET_DYN, 0).bytes());
    }
    using Entries = std::vector<std::pair<std::int64_t, std::string>>;
    std::string program(const Entries& entries, const std::string& name = "bin/app") {
        ElfBuilder elf;
        elf.text(0x500, loader);
        elf.add(PT_INTERP, PF_R, 0x500, 0, loader.size() + 1, loader.size() + 1, 1);
        elf.dynamic(entries);
        write_whole(root + "/" + name, elf.bytes());
        return root + "/" + name;
    }
    void library(const std::string& name, const Entries& entries = {}, std::uint16_t machine = EM_X86_64) {
        ElfBuilder elf(ET_DYN, 0);
        elf.header.e_machine = machine;
        elf.dynamic(entries);
        write_whole(root + "/" + name, elf.bytes());
    }
    // Paths opened after the interpreter, without the tree's root.
    std::string find(const std::string& path) {
        const LibraryList list = find_libraries(path, search);
        std::string text;
        for (const std::string& found : opened(list, 1))
            text.append(text.empty() ? "" : " ").append(found, root.size() + 1);
        for (const MissingLibrary& missing : list.missing)
            text.append(" !").append(missing.name);
        return text;
    }
    TempFolder temp;
    std::string root, loader;
    LibrarySearch search;
};

} // namespace

TEST_CASE("the same libraries as the system's loader finds") {
    const std::string samples = TEST_SAMPLES;
    for (const std::string& program :
         {samples + "/elf_runpath", samples + "/elf_rpath", samples + "/elf_lost", std::string("/bin/ls"),
          std::string("/usr/bin/python3"), std::string("/usr/bin/node"), std::string("/usr/bin/git"),
          std::string("/usr/bin/cmake"), std::string("/usr/bin/qemu-system-x86_64"), std::string("/usr/bin/gdb")}) {
        if (!fs::exists(program))
            continue;
        INFO(program);
        const LibraryList mine = find_libraries(program);
        const FromLoader theirs = ask_loader(program);
        const std::set<std::string> found = names(mine);
        CHECK_FALSE(theirs.found.empty());
        for (const std::string& path : theirs.found)
            CHECK((found.contains(path) ? path : "not found: " + path) == path);
        std::set<std::string> missing;
        for (const MissingLibrary& library : mine.missing)
            missing.insert(library.name);
        CHECK(missing == theirs.missing);
        CHECK(mine.configuration.size() >= 1);
    }
    CHECK(error_of([&] { require_libraries("x", find_libraries(samples + "/elf_runpath")); }) == "");
    CHECK(error_of([&] { require_libraries("x", find_libraries(samples + "/elf_lost")); }) ==
          "x: missing library libelfdeep.so (needed by " + samples +
              "/mid/libelfbare.so); install it or set LD_LIBRARY_PATH to its folder");
}

TEST_CASE("order of the search") {
    Tree tree;
    const std::string app = tree.program({{DT_NEEDED, "liba.so"}});
    CHECK(tree.find(app) == " !liba.so");
    tree.library("default/liba.so");
    CHECK(tree.find(app) == "default/liba.so");
    tree.library("default/glibc-hwcaps/x86-64-v3/liba.so");
    CHECK(tree.find(app) == "default/glibc-hwcaps/x86-64-v3/liba.so default/liba.so");

    tree.library("env/liba.so");
    tree.search.library_path = "/nowhere:" + tree.root + "/env";
    CHECK(tree.find(app) == "env/liba.so");
    // RUNPATH comes after LD_LIBRARY_PATH, RPATH before it.
    tree.library("own/liba.so");
    CHECK(tree.find(tree.program({{DT_NEEDED, "liba.so"}, {DT_RUNPATH, "$ORIGIN/../own"}})) == "env/liba.so");
    const std::string rpath = tree.program({{DT_NEEDED, "liba.so"}, {DT_RPATH, "$ORIGIN/../own"}});
    CHECK(tree.find(rpath) == "bin/../own/liba.so");
    CHECK(tree.find(tree.program({{DT_NEEDED, "liba.so"}, {DT_RPATH, "/x"}, {DT_RUNPATH, "${ORIGIN}/../own"}})) ==
          "env/liba.so");
    // One for another machine is passed over.
    tree.library("own/liba.so", {}, EM_AARCH64);
    CHECK(tree.find(rpath) == "env/liba.so");
    tree.search.library_path.clear();
    tree.search.cwd = tree.root + "/env";
    CHECK(tree.find(tree.program({{DT_NEEDED, "liba.so"}, {DT_RUNPATH, ":/x"}})) == "env/./liba.so");
}

TEST_CASE("libraries of libraries") {
    Tree tree;
    tree.library("lib/liba.so", {{DT_NEEDED, "libb.so"}, {DT_NEEDED, "libc.so"}, {DT_SONAME, "liba.so.1"}});
    tree.library("lib/libb.so", {{DT_NEEDED, "liba.so.1"}, {DT_NEEDED, "libb.so"}});
    tree.library("lib/libc.so", {{DT_NEEDED, "libgone.so"}, {DT_NEEDED, "ld.so"}});
    // The program's RPATH serves its libraries' needs, its RUNPATH does not; a circle ends.
    const std::string all = "bin/../lib/liba.so bin/../lib/libb.so bin/../lib/libc.so !libgone.so";
    CHECK(tree.find(tree.program({{DT_NEEDED, "liba.so"}, {DT_RPATH, "$ORIGIN/../lib"}})) == all);
    CHECK(tree.find(tree.program({{DT_NEEDED, "liba.so"}, {DT_RUNPATH, "$ORIGIN/../lib"}})) ==
          "bin/../lib/liba.so !libb.so !libc.so");
    const LibraryList list = find_libraries(tree.root + "/bin/app", tree.search);
    CHECK(list.missing[0].needed_by == tree.root + "/bin/../lib/liba.so");
    CHECK(list.found[0].path == tree.loader);
    CHECK(list.found[1].canonical == tree.root + "/lib/liba.so");
    CHECK(error_of([&] { require_libraries("app", list); }) ==
          "app: missing library libb.so and 1 more (needed by " + tree.root +
              "/bin/../lib/liba.so); install it or set LD_LIBRARY_PATH to its folder");
    for (const char* name : {"/lib/x.so", "x.so"})
        CHECK(error_of([&] {
                  require_libraries("a\n", {{}, {{name, "/lib/\x1b[2J.so"}}, {}});
              }).find_first_of("\n\x1b") == std::string::npos);

    // By path, with the origin of the file that says so; and through a symbolic link to the program.
    const std::string app = tree.program({{DT_NEEDED, "$ORIGIN/../lib/libb.so"}, {DT_NEEDED, "rel/x.so"}}, "real/app");
    tree.library("rel/x.so");
    tree.search.cwd = tree.root;
    tree.library("lib/libb.so");
    CHECK(tree.find(app) == "real/../lib/libb.so rel/x.so");
    fs::create_symlink(app, tree.root + "/link");
    CHECK(tree.find(tree.root + "/link") == "real/../lib/libb.so rel/x.so");
}

TEST_CASE("preloads and a missing interpreter") {
    Tree tree;
    tree.library("lib/pre.so");
    tree.library("lib/env.so");
    write_whole(tree.search.preload_file, bytes_of(tree.root + "/lib/pre.so\t/no/such.so\n"));
    tree.search.preload = tree.root + "/lib/env.so:gone.so";
    const std::string app = tree.program({});
    CHECK(tree.find(app) == "lib/env.so lib/pre.so");
    CHECK(find_libraries(app, tree.search).configuration == std::vector{tree.search.preload_file});
    fs::remove(tree.loader);
    CHECK(error_of([&] { require_libraries("app", find_libraries(app, tree.search)); }) ==
          "app: missing " + tree.loader + " (needed by " + app + "); install it");
}

TEST_CASE("programs without libraries") {
    Tree tree;
    write_whole(tree.root + "/static", ElfBuilder().bytes());
    CHECK(find_libraries(tree.root + "/static", tree.search).found.empty());
    CHECK(error_of([&] { find_libraries(tree.root + "/none"); }) == tree.root + "/none: no such file");
    const std::string app = tree.program({{DT_NEEDED, ""}});
    CHECK(error_of([&] { find_libraries(app, tree.search); }) == app + ": is damaged: its dynamic section is invalid");
}

TEST_CASE("musl") {
    Tree tree;
    tree.interpreter("ld-musl-x86_64.so.1");
    tree.library("m/libz.so.1", {{DT_NEEDED, "libc.musl-x86_64.so.1"}, {DT_NEEDED, "liby.so"}});
    tree.library("m/own/liby.so");
    write_whole(tree.search.musl_path_file, bytes_of("/x\n" + tree.root + "/m\n"));
    // The RUNPATH of the program serves its libraries too.
    const std::string app =
        tree.program({{DT_NEEDED, "libz.so.1"}, {DT_NEEDED, "libc.so"}, {DT_RUNPATH, "$ORIGIN/../m/own"}});
    CHECK(tree.find(app) == "m/libz.so.1 bin/../m/own/liby.so");
}

TEST_CASE("hostile search paths end") {
    Tree tree;
    tree.library("lib/liba.so");
    std::string path, deep;
    for (int i = 0; i < 100; ++i)
        path += "$LIB";
    CHECK(tree.find(tree.program({{DT_NEEDED, "liba.so"}, {DT_RPATH, path}})) == " !liba.so");
    CHECK(tree.find(tree.program({{DT_NEEDED, "../$LIB/$PLATFORM/$NOTHING/${LIB"}})) ==
          " !../$LIB/$PLATFORM/$NOTHING/${LIB");
    CHECK(tree.find(tree.program({{DT_NEEDED, "a\nb"}})) == " !a\\x0ab");
}

TEST_CASE("the cache of the system") {
    const LdCache cache = LdCache::from_file("/etc/ld.so.cache");
    if (fs::exists("/etc/ld.so.cache")) {
        REQUIRE(cache.size() > 0);
        REQUIRE_FALSE(cache.find("libc.so.6").empty());
        CHECK(fs::exists(cache.find("libc.so.6")[0]));
    }
    CHECK(cache.find("libno-such-thing.so").empty());
    CHECK(LdCache::from_file("/no/such/file").size() == 0);
    CHECK(LdCache::from_file("/").size() == 0);
}

TEST_CASE("hand-made and hostile caches") {
    struct Entry {
        std::int32_t flags;
        std::uint32_t key, value, os;
        std::uint64_t hwcap;
    };
    const auto make = [](std::uint32_t count, std::uint8_t flags, std::vector<Entry> entries,
                         const std::string& prefix = "") {
        std::string text = "glibc-ld.so.cache1.1";
        text.append(reinterpret_cast<const char*>(&count), 4);
        text.append(4, '\0');
        text += static_cast<char>(flags);
        text.append(19, '\0');
        text.append(reinterpret_cast<const char*>(entries.data()), entries.size() * sizeof(Entry));
        text += std::string("liba.so\0/x/liba.so\0rel/liba.so\0end", 34);
        return bytes_of(prefix + text);
    };
    const std::uint32_t strings = 48 + 24 * 2;
    const Entry good{0x303, strings, strings + 8, 0, 0};
    const auto find = [](const Bytes& bytes) {
        const auto paths = LdCache::parse(bytes).find("liba.so");
        return paths.empty() ? "" : paths[0];
    };
    CHECK(find(make(2, 2, {good, good})) == "/x/liba.so");
    CHECK(LdCache::parse(make(2, 0, {good, good})).find("liba.so").size() == 2);
    CHECK(find(make(2, 3, {good, good})) == "");                          // big-endian
    CHECK(find(make(~0u, 2, {good, good})) == "/x/liba.so");              // as far as the file goes
    CHECK(find(make(2, 2, {{3, strings, strings + 8, 0, 0}, {}})) == ""); // 32-bit
    CHECK(find(make(2, 2, {{0x303, ~0u, strings + 8, 0, 0}, {}})) == ""); // beyond the file
    CHECK(find(make(2, 2, {{0x303, strings, ~0u, 0, 0}, {}})) == "");
    CHECK(find(make(2, 2, {{0x303, strings, strings + 19, 0, 0}, {}})) == ""); // not absolute
    CHECK(find(make(2, 2, {{0x303, strings, strings + 31, 0, 0}, {}})) == ""); // not terminated

    // The combined format: an old header, its entries, then the new one at a multiple of 8.
    std::string old = std::string("ld.so-1.7.0\0\1\0\0\0", 16) + std::string(12, 'x');
    old.resize(32);
    CHECK(find(make(2, 2, {good, good}, old)) == "/x/liba.so");
    old[12] = old[13] = old[14] = old[15] = '\xff';
    CHECK(find(make(2, 2, {good, good}, old)) == "");
    CHECK(find(bytes_of("ld.so-1.7.0")) == "");

    const Bytes whole = make(2, 2, {good, good});
    for (std::size_t size = 0; size < whole.size(); ++size)
        LdCache::parse(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
}
