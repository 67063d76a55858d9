// What of a plan stands in the file system of a jail: looked at only, nothing is mounted.
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "src/jail/own_root.hpp"
#include "tests/catch.hpp"

using namespace kvmserver::jail;
namespace fs = std::filesystem;

namespace {

// Folders open/sub and secret, files in them, and a link from open/out to secret.
class Folder {
public:
    Folder() {
        std::string name = "/var/tmp/kvmserver-root-XXXXXX";
        REQUIRE(::mkdtemp(name.data()));
        path_ = fs::canonical(name);
        for (const char* folder : {"open/sub", "secret"})
            fs::create_directories(path_ / folder);
        std::ofstream(path_ / "open/file") << "x";
        std::ofstream(path_ / "secret/file") << "x";
        std::ofstream(path_ / "secret/other") << "x";
        fs::create_directory_symlink(path_ / "secret", path_ / "open/out");
        fs::create_directory_symlink("open", path_ / "link");
    }
    ~Folder() { fs::remove_all(path_); }

    std::string operator/(const char* name) const { return (path_ / name).string(); }
    Place read(const char* name) const { return {*this / name, false}; }
    Place write(const char* name) const { return {*this / name, true}; }

    // Of places under bounds: what is shown, by name, and whether it may be changed.
    std::map<std::string, bool> shown(const std::vector<Place>& places, const std::vector<Bound>& bounds) const {
        Plan plan;
        plan.places = places;
        plan.bounds = bounds;
        std::map<std::string, bool> found;
        const OwnRoot root(plan);
        for (const Shown& each : root.shown())
            if (!each.path.starts_with("/dev/"))
                found[fs::path(each.path).lexically_relative(path_).string()] = each.write;
        return found;
    }

private:
    fs::path path_;
};

using Found = std::map<std::string, bool>;

} // namespace

TEST_CASE("a bound shows what of a place lies within it, with the lesser right") {
    const Folder folder;
    CHECK(folder.shown({folder.write("")}, {}) == Found{{".", true}});
    CHECK(folder.shown({folder.write("")}, {{folder.read("open")}}) == Found{{"open", false}});
    CHECK(folder.shown({folder.read("")}, {{folder.write("open")}}) == Found{{"open", false}});
    CHECK(folder.shown({folder.write("open/sub")}, {{folder.write("open")}}) == Found{{"open/sub", true}});
    CHECK(folder.shown({folder.write("secret"), folder.read("open/file")}, {{folder.write("open")}}) ==
          Found{{"open/file", false}});
    CHECK(folder.shown({{"/", true}}, {{folder.read("open"), folder.write("open/sub")}}) ==
          Found{{"open", false}, {"open/sub", true}});
    CHECK(folder.shown({{"/", true}}, {{}}).empty());
}

TEST_CASE("of several bounds each holds") {
    const Folder folder;
    CHECK(folder.shown({{"/", true}}, {{folder.write("open")}, {folder.read("")}}) == Found{{"open", false}});
    CHECK(folder.shown({{"/", true}}, {{folder.write("open")}, {folder.write("open/sub"), folder.read("secret")}}) ==
          Found{{"open/sub", true}});
    CHECK(folder.shown({{"/", true}}, {{folder.write("open")}, {folder.write("secret")}}).empty());
}

TEST_CASE("a bound is compared by where links lead") {
    const Folder folder;
    CHECK(folder.shown({folder.write("open/out")}, {{folder.write("open")}}).empty());
    CHECK(folder.shown({folder.read("open/out/file")}, {{folder.write("open")}}).empty());
    CHECK(folder.shown({folder.read("link/file")}, {{folder.read("open")}}) == Found{{"open/file", false}});
    CHECK(folder.shown({folder.read("open/file")}, {{folder.read("link")}}) == Found{{"open/file", false}});
}

TEST_CASE("what is yet to be made is within what it is granted") {
    const Folder folder;
    CHECK(folder.shown({folder.write("open/new")}, {{folder.write("open")}}) == Found{{"open", true}});
    CHECK(folder.shown({folder.write("open/new")}, {{folder.write("open/new")}}) == Found{{"open", true}});
    CHECK(folder.shown({folder.write("secret/new")}, {{folder.write("open")}}).empty());
}

TEST_CASE("what is shown by a folder above needs no mount of its own, and hides nothing behind it") {
    const Folder folder;
    CHECK(
        folder.shown({folder.read("open"), folder.read("open/file"), folder.read("secret"), folder.read("secret/file")},
                     {}) == Found{{"open", false}, {"secret", false}});
    CHECK(folder.shown(
              {folder.read("open"), folder.read("open/file"), folder.read("secret/file"), folder.read("secret/other")},
              {}) == Found{{"open", false}, {"secret/file", false}, {"secret/other", false}});
}
