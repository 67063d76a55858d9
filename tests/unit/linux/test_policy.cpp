// Which paths can be reached, and that nothing else can: escapes by "..", symlinks, magic links.
#include <sched.h>
#include <sys/mount.h>

#include <atomic>
#include <thread>

#include "tests/unit/linux/world.hpp"
#include "tinykvm/base/error.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

int error_of(World& world, const std::string& path, int flags = O_RDONLY) {
    return world.policy->open(path, flags, 0644, {}).error;
}

std::string content(World& world, const std::string& path) {
    const OpenedPath opened = world.policy->open(path, O_RDONLY, 0, {});
    if (!opened.fd)
        return "error " + std::to_string(opened.error);
    char buffer[64];
    const ssize_t n = ::pread(opened.fd.get(), buffer, sizeof buffer, 0);
    return std::string(buffer, n > 0 ? static_cast<std::size_t>(n) : 0);
}

} // namespace

TEST_CASE("what is permitted opens, directly and through links inside") {
    World world;
    const std::string open = world.tmp / "open";
    CHECK(content(world, open + "/file.txt") == "hello world");
    CHECK(content(world, open + "//./sub/../file.txt") == "hello world");
    CHECK(content(world, open + "/link") == "hello world");
    CHECK(content(world, open + "/linkdir/inner.txt") == "inner");
    CHECK(content(world, open + "/linkdir/../link") == "hello world");
    const OpenedPath opened = world.policy->open(open + "/linkdir/inner.txt", O_RDONLY, 0, {});
    CHECK(opened.path == open + "/sub/inner.txt");
}

TEST_CASE("every way out of a permitted folder is closed") {
    World world;
    const std::string open = world.tmp / "open";
    const std::string path =
        GENERATE_COPY(as<std::string>{}, "/out", "/outdir/key", "/../secret/key", "/sub/../../secret/key",
                      "/linkdir/../../secret/key", "/outdir/../secret/key", "/sub/../outdir/./key", "/out/",
                      "/../../../../../../../etc/hostname");
    CAPTURE(path);
    CHECK(error_of(world, open + path) == ENOENT);
    CHECK(error_of(world, open + path, O_PATH) == ENOENT);
    CHECK(error_of(world, open + path, O_RDWR) == EACCES);
    CHECK(error_of(world, open + path, O_WRONLY | O_CREAT) == EACCES);
    CHECK(read_file(world.tmp / "secret/key") == "SECRET");
}

TEST_CASE("the host's process and magic links cannot be reached, whatever is permitted") {
    Permissions everything;
    everything.all = true;
    World world(everything);
    const std::string self = std::to_string(::getpid());
    const std::string path =
        GENERATE_COPY(as<std::string>{}, "/proc/self/root/etc/passwd", "/proc/self/fd/0", "/proc/self/fd",
                      "/proc/self/mem", "/proc/self/environ", "/proc/self/cwd", "/proc/self/task",
                      "/proc/self/map_files", "/proc/thread-self/root", "/proc/" + self + "/mem",
                      "/proc/" + self + "/root/etc/passwd", "/proc/1/root", "/proc/1/environ", "/proc/./self//root",
                      "/proc/sys/../self/mem", "/dev/fd/0", "/proc/self/mountstats", "/proc/kcore", "/sys/fs/cgroup");
    CAPTURE(path);
    CHECK(error_of(world, path) == ENOENT);
    CHECK(error_of(world, path, O_RDWR) != 0);
    CHECK(error_of(world, path, O_PATH) == ENOENT);
    // By a symlink that the guest makes itself.
    fs::create_symlink(path, world.tmp / "rw/magic");
    CHECK(error_of(world, world.tmp / "rw/magic") == ENOENT);
    CHECK(error_of(world, world.tmp / "rw/magic/x") == ENOENT);
}

TEST_CASE("nothing under /proc is written to, with every permission") {
    Permissions everything;
    everything.all = true;
    World world(everything);
    CHECK(error_of(world, "/proc/sys/kernel/core_pattern", O_WRONLY) == EACCES);
    CHECK(error_of(world, "/proc/sysrq-trigger", O_WRONLY) != 0);
    CHECK(error_of(world, "/proc/sys/kernel/pid_max") == 0);
}

TEST_CASE("a denied place answers the same whether or not a path exists") {
    World world;
    const std::string there = world.tmp / "secret/key", missing = world.tmp / "secret/none",
                      deeper = world.tmp / "secret/key/x";
    for (const std::string& path : {there, missing, deeper}) {
        CAPTURE(path);
        CHECK(error_of(world, path) == ENOENT);
        CHECK(error_of(world, path, O_PATH | O_NOFOLLOW) == ENOENT);
        CHECK(error_of(world, path, O_WRONLY) == EACCES);
        CHECK(error_of(world, path, O_RDONLY | O_CREAT) == EACCES);
        CHECK(error_of(world, path, O_WRONLY | O_CREAT | O_EXCL) == EACCES);
        CHECK(error_of(world, path, O_RDONLY | O_TRUNC) == EACCES);
        const OpenedPlace place = world.policy->place(path, false, {});
        CHECK(place.error == EACCES);
        CHECK_FALSE(place.exists);
    }
}

TEST_CASE("a readable place tells the truth and takes no change") {
    World world;
    const std::string open = world.tmp / "open";
    CHECK(error_of(world, open + "/none") == ENOENT);
    CHECK(error_of(world, open + "/none/x") == ENOENT);
    CHECK(error_of(world, open + "/file.txt/x") == ENOTDIR);
    CHECK(error_of(world, open + "/file.txt/") == ENOTDIR);
    CHECK(error_of(world, open + "/file.txt/.") == ENOTDIR);
    CHECK(error_of(world, open + "/file.txt/..") == ENOTDIR);
    CHECK(error_of(world, open + "/loop") == ELOOP);
    CHECK(error_of(world, open + "/dangling") == ENOENT);
    CHECK(error_of(world, open + "/link", O_RDONLY | O_NOFOLLOW) == ELOOP);
    CHECK(error_of(world, open + "/link", O_PATH | O_NOFOLLOW) == 0);
    CHECK(error_of(world, open + "/file.txt", O_RDONLY | O_DIRECTORY) == ENOTDIR);
    CHECK(error_of(world, open + "/sub", O_RDONLY | O_DIRECTORY) == 0);
    CHECK(error_of(world, open + "/file.txt", O_WRONLY) == EACCES);
    CHECK(error_of(world, open + "/file.txt", O_RDONLY | O_CREAT) == 0);
    CHECK(error_of(world, open + "/file.txt", O_RDONLY | O_CREAT | O_EXCL) == EEXIST);
    CHECK(error_of(world, open + "/new", O_RDONLY | O_CREAT) == EACCES);
    CHECK(error_of(world, open + "/file.txt", O_RDONLY | O_TRUNC) == EACCES);
    CHECK(read_file(open + "/file.txt") == "hello world");
}

TEST_CASE("a writable place is written to, links are followed only to where writing is allowed") {
    World world;
    const std::string rw = world.tmp / "rw";
    CHECK(error_of(world, rw + "/new", O_RDWR | O_CREAT | O_EXCL) == 0);
    CHECK(error_of(world, rw + "/new", O_RDWR | O_CREAT | O_EXCL) == EEXIST);
    CHECK(error_of(world, rw + "/new/", O_RDWR | O_CREAT) == EISDIR);
    CHECK(error_of(world, rw + "/none/new", O_RDWR | O_CREAT) == ENOENT);
    fs::create_symlink(world.tmp / "open/file.txt", rw + "/toread");
    CHECK(error_of(world, rw + "/toread") == 0);
    CHECK(error_of(world, rw + "/toread", O_RDWR) == EACCES);
    fs::create_symlink(world.tmp / "secret/made", rw + "/tomake");
    CHECK(error_of(world, rw + "/tomake", O_WRONLY | O_CREAT) == EACCES);
    CHECK_FALSE(fs::exists(world.tmp / "secret/made"));
    // Dangling inside: Linux creates the target.
    fs::create_symlink("made", rw + "/inside");
    CHECK(error_of(world, rw + "/inside", O_WRONLY | O_CREAT) == 0);
    CHECK(fs::exists(rw + "/made"));
    CHECK(error_of(world, rw + "/inside", O_WRONLY | O_CREAT | O_EXCL) == EEXIST);
}

TEST_CASE("what leads to a permitted place may be looked up, not listed") {
    World world;
    CHECK(error_of(world, world.tmp.path, O_PATH) == 0);
    CHECK(error_of(world, "/", O_PATH) == 0);
    CHECK(error_of(world, world.tmp.path, O_RDONLY | O_DIRECTORY) == EACCES);
    CHECK(error_of(world, world.tmp / "secret", O_PATH) == ENOENT);
    const OpenedPath refused = world.policy->open(world.tmp.path, O_RDONLY, 0, {});
    CHECK(refused.refused == "--allow-read=" + world.tmp.path + " would allow it");
}

TEST_CASE("permissions may name symlinks; what they name is what is allowed") {
    TempFolder tmp;
    fs::create_directories(tmp / "real/inner");
    fs::create_directories(tmp / "other");
    write_file(tmp / "real/inner/f", "x");
    write_file(tmp / "other/f", "other");
    fs::create_directory_symlink("real", tmp / "alias");
    Permissions permissions;
    permissions.read = {tmp / "alias/inner"};
    const Policy policy(permissions);
    CHECK(policy.open(tmp / "alias/inner/f", O_RDONLY, 0, {}).error == 0);
    CHECK(policy.open(tmp / "real/inner/f", O_RDONLY, 0, {}).error == 0);
    CHECK(policy.open(tmp / "alias", O_PATH | O_NOFOLLOW, 0, {}).error == 0); // for realpath
    // Pointing the link elsewhere later allows nothing more.
    fs::remove(tmp / "alias");
    fs::create_directories(tmp / "other/inner");
    write_file(tmp / "other/inner/f", "x");
    fs::create_directory_symlink("other", tmp / "alias");
    CHECK(policy.open(tmp / "alias/inner/f", O_RDONLY, 0, {}).error == ENOENT);
}

TEST_CASE("a permitted folder that is replaced by a link to elsewhere allows nothing there") {
    World world;
    fs::rename(world.tmp / "open", world.tmp / "moved");
    fs::create_directory_symlink("secret", world.tmp / "open");
    CHECK(error_of(world, world.tmp / "open/key") == ENOENT);
    CHECK(error_of(world, world.tmp / "moved/file.txt") == ENOENT);
}

TEST_CASE("a procfs that is mounted elsewhere is not a way in") {
    TempFolder tmp;
    fs::create_directories(tmp / "proc");
    // In a mount namespace of its own, which needs privileges: without them there is nothing to test.
    std::atomic<int> outcome = -1;
    std::thread([&] {
        if (::unshare(CLONE_FS | CLONE_NEWNS) != 0 || ::mount("", "/", "", MS_REC | MS_PRIVATE, nullptr) != 0 ||
            ::mount("proc", (tmp / "proc").c_str(), "proc", 0, nullptr) != 0)
            return;
        Permissions everything;
        everything.all = true;
        const Policy policy(everything);
        outcome = 0;
        for (const char* path :
             {"proc/self/mem", "proc/self/environ", "proc/self/status", "proc/version", "proc/1/environ"})
            outcome += policy.open(tmp / path, O_RDONLY, 0, {}).error == 0;
        ::umount2((tmp / "proc").c_str(), MNT_DETACH);
    }).join();
    CHECK(outcome <= 0);
}

TEST_CASE("the implied files are readable exactly") {
    TempFolder tmp;
    fs::create_directories(tmp / "lib");
    write_file(tmp / "lib/a.so", "a");
    write_file(tmp / "lib/a.so.bak", "b");
    Permissions permissions;
    permissions.implied_read = {tmp / "lib/a.so"};
    const Policy policy(permissions);
    CHECK(policy.open(tmp / "lib/a.so", O_RDONLY, 0, {}).error == 0);
    CHECK(policy.open(tmp / "lib/a.so.bak", O_RDONLY, 0, {}).error == ENOENT);
    CHECK(policy.open(tmp / "lib/a.so", O_WRONLY, 0, {}).error == EACCES);
}

TEST_CASE("volumes show host folders elsewhere") {
    TempFolder tmp;
    fs::create_directories(tmp / "host/sub");
    write_file(tmp / "host/f", "volume");
    write_file(tmp / "host/sub/g", "g");
    write_file(tmp / "single", "one file");
    fs::create_symlink("/kvmserver-test/data/f", tmp / "host/absolute");
    fs::create_symlink("../../../../../.." + (tmp / "single"), tmp / "host/up");
    fs::create_symlink(tmp / "single", tmp / "host/hostpath");
    Permissions permissions;
    permissions.volumes = {{tmp / "host", "/kvmserver-test/data", true, false, false},
                           {tmp / "host/sub", "/kvmserver-test/data/rw", true, true, false},
                           {tmp / "single", "/kvmserver-test/file", true, false, true}};
    const Policy policy(permissions);
    const auto error = [&](const std::string& path, int flags = O_RDONLY) {
        return policy.open(path, flags, 0600, {}).error;
    };
    CHECK(error("/kvmserver-test/data/f") == 0);
    CHECK(error("/kvmserver-test/data") == 0);
    CHECK(error("/kvmserver-test/data/sub/../f") == 0);
    CHECK(error("/kvmserver-test/data/absolute") == 0);
    CHECK(error("/kvmserver-test/data/hostpath") == ENOENT); // absolute links are the guest's paths
    CHECK(error("/kvmserver-test/data/up") == ENOENT);
    CHECK(error("/kvmserver-test/data/../../" + (tmp / "single")) == ENOENT);
    CHECK(error("/kvmserver-test/file") == 0);
    CHECK(error("/kvmserver-test/file/x") == ENOTDIR);
    CHECK(error("/kvmserver-test", O_PATH) == 0);         // is not on the host at all
    CHECK(error("/kvmserver-test/data/..", O_PATH) == 0); // and found again from within
    CHECK(error("/kvmserver-test/data/sub/../..", O_PATH | O_DIRECTORY) == 0);
    CHECK(policy.open("/kvmserver-test/data/..", O_PATH, 0, {}).path == "/kvmserver-test");
    CHECK(error("/kvmserver-test/data/..", O_RDONLY | O_DIRECTORY) == EACCES);
    CHECK(error("/kvmserver-test/other") == ENOENT);
    CHECK(error(tmp / "host/f") == ENOENT); // only where the volume is
    CHECK(error("/kvmserver-test/data/new", O_WRONLY | O_CREAT) == EACCES);
    CHECK(error("/kvmserver-test/data/rw/new", O_WRONLY | O_CREAT) == 0);
    CHECK(fs::exists(tmp / "host/sub/new"));
    CHECK((policy.open("/kvmserver-test/file", O_RDONLY, 0, {}).rights & kExecute));
    CHECK_FALSE((policy.open("/kvmserver-test/data/f", O_RDONLY, 0, {}).rights & kExecute));
    const OpenedPath refused = policy.open("/kvmserver-test/data/f", O_WRONLY, 0, {});
    CHECK(refused.refused == "--volume=" + (tmp / "host") + ":/kvmserver-test/data:rw would allow it");
    CHECK(policy.place("/kvmserver-test/data/rw", false, {}).error == EBUSY);
}

TEST_CASE("no file is made where a folder leads to a volume") {
    TempFolder tmp;
    fs::create_directories(tmp / "written");
    fs::create_directories(tmp / "host");
    write_file(tmp / "host/f", "volume");
    Permissions permissions;
    permissions.write = {tmp / "written"};
    permissions.volumes = {{tmp / "host", tmp / "written/way/v", true, false, false}};
    const Policy policy(permissions);
    const auto error = [&](const std::string& path, int flags) { return policy.open(path, flags, 0600, {}).error; };
    CHECK(error(tmp / "written/way", O_RDWR | O_CREAT) == EISDIR);
    CHECK(error(tmp / "written/way", O_RDONLY | O_CREAT) == EISDIR);
    CHECK(error(tmp / "written/way", O_RDONLY | O_CREAT | O_EXCL) == EEXIST);
    CHECK_FALSE(fs::exists(tmp / "written/way"));
    CHECK(error(tmp / "written/way/../new", O_RDWR | O_CREAT) == 0);
    CHECK(error(tmp / "written/way/v/f", O_RDONLY) == 0);
}

TEST_CASE("from a permitted folder in /tmp, \"..\" may be looked up, not listed") {
    std::string name = "/tmp/kvmserver-linux-XXXXXX";
    REQUIRE(::mkdtemp(name.data()));
    Permissions permissions;
    permissions.read = {name};
    const Policy policy(permissions);
    CHECK(policy.open(name + "/..", O_PATH, 0, {}).error == 0);
    CHECK(policy.open(name + "/..", O_RDONLY | O_DIRECTORY, 0, {}).error == EACCES);
    CHECK(policy.open(name + "/../" + name.substr(5), O_RDONLY, 0, {}).error == 0);
    CHECK(policy.open(name + "/../other", O_RDONLY, 0, {}).error == kOwnPath);
    fs::remove(name);
}

TEST_CASE("a volume whose host folder is missing is the user's mistake") {
    Permissions permissions;
    permissions.volumes = {{"/no/such/folder", "/x", true, false, false}};
    CHECK_THROWS_AS(Policy(permissions), UserError);
    permissions.volumes = {{"/tmp", "relative", true, false, false}};
    CHECK_THROWS_AS(Policy(permissions), UserError);
    permissions.volumes.clear();
    permissions.read = {"relative"};
    CHECK_THROWS_AS(Policy(permissions), UserError);
}

TEST_CASE("hostile paths and flags") {
    World world;
    CHECK(error_of(world, "") == ENOENT);
    CHECK(error_of(world, "relative") == ENOENT);
    CHECK(error_of(world, "/" + std::string(5000, 'a')) == ENAMETOOLONG);
    CHECK(error_of(world, world.tmp / "open/" + std::string(300, 'a')) == ENAMETOOLONG);
    std::string deep = world.tmp / "open";
    for (int n = 0; n < 1000; ++n)
        deep += "/..";
    CHECK(error_of(world, deep, O_PATH) == 0);                                // the root
    CHECK(error_of(world, world.tmp / "open/file.txt", O_ACCMODE) == EACCES); // reading and writing
    CHECK(error_of(world, world.tmp / "rw", O_TMPFILE | O_RDWR) == 0);
    CHECK(error_of(world, world.tmp / "open", O_TMPFILE | O_RDWR) == EACCES);
    CHECK(error_of(world, world.tmp / "rw/x", O_CREAT | O_DIRECTORY) == EINVAL);
    CHECK(error_of(world, world.tmp / "open/file.txt", 0x7fffffff & ~(O_ACCMODE | O_CREAT | O_TRUNC | O_PATH)) != 0);
    CHECK(error_of(world, world.tmp / "open/file.txt", O_PATH | O_CREAT | O_TRUNC | O_RDWR) == 0);
    // A chain of links that is longer than Linux follows.
    for (int n = 0; n < 50; ++n)
        fs::create_symlink("l" + std::to_string(n + 1), world.tmp / "rw/l" + std::to_string(n));
    write_file(world.tmp / "rw/l50", "end");
    CHECK(error_of(world, world.tmp / "rw/l5") == ELOOP);
    CHECK(error_of(world, world.tmp / "rw/l15") == 0);
}

TEST_CASE("a FIFO does not block the machine and devices that are free are free") {
    World world;
    REQUIRE(::mkfifo((world.tmp / "rw/fifo").c_str(), 0600) == 0);
    CHECK(error_of(world, world.tmp / "rw/fifo") == 0);
    CHECK(error_of(world, world.tmp / "rw/fifo", O_WRONLY) == ENXIO);
    CHECK(error_of(world, "/dev/null", O_RDWR) == 0);
    CHECK(error_of(world, "/dev/urandom") == 0);
    CHECK(error_of(world, "/dev/null", O_WRONLY | O_CREAT | O_TRUNC) == 0); // as shells open it
    CHECK(error_of(world, "/dev/tty", O_RDWR) == ENXIO);
    CHECK(error_of(world, "/dev/mem") == ENOENT);
    CHECK(world.policy->place("/dev/null", false, {}).error == EACCES);
}
