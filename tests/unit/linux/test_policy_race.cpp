// Something on the host swaps links and folders while the guest opens paths: never may a byte of the secret
// come out, nor anything be made beside it.
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "tests/amount.hpp"
#include "tests/unit/linux/world.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

constexpr int kOpens = 20000;

std::string first_bytes(const OpenedPath& opened) {
    char buffer[16] = "";
    const ssize_t n = ::pread(opened.fd.get(), buffer, sizeof buffer - 1, 0);
    return std::string(buffer, n > 0 ? static_cast<std::size_t>(n) : 0);
}

// Runs `swap` over and over in another thread while `probe` runs kOpens times in this one, or a part of that.
template <class Swap, class Probe>
void race(Swap swap, Probe probe) {
    std::atomic<bool> stop = false; // Catch2's macros are for one thread only: `swap` has none
    std::atomic<std::uint64_t> swaps = 0;
    std::thread other([&] {
        while (!stop) {
            swap();
            ++swaps;
        }
    });
    while (swaps == 0)
        std::this_thread::yield();
    for (int n = 0; n < kvmserver::test::amount(kOpens); ++n)
        probe();
    stop = true;
    other.join();
    CHECK(swaps > 10);
}

} // namespace

TEST_CASE("a last component that flips between file and link to a secret") {
    World world;
    const std::string path = world.tmp / "rw/flip", file = world.tmp / "rw/spare", link = world.tmp / "rw/sparelink";
    write_file(path, "PUBLIC");
    fs::create_symlink(world.tmp / "secret/key", link);
    int opened_public = 0, secrets = 0, others = 0;
    race([&] { ::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, link.c_str(), RENAME_EXCHANGE); },
         [&] {
             const OpenedPath opened = world.policy->open(path, O_RDONLY, 0, {});
             if (opened.fd)
                 ++(first_bytes(opened) == "PUBLIC" ? opened_public : secrets);
             else if (opened.error != ENOENT && opened.error != ELOOP)
                 ++others;
         });
    CHECK(secrets == 0);
    CHECK(others == 0);
    CHECK(opened_public > 0);
}

TEST_CASE("a folder in the middle that flips between folder and link to a secret folder") {
    World world;
    const std::string folder = world.tmp / "rw/mid", link = world.tmp / "rw/midlink";
    fs::create_directories(folder);
    write_file(folder + "/key", "PUBLIC");
    fs::create_symlink(world.tmp / "secret", link);
    int opened_public = 0, secrets = 0;
    race([&] { ::renameat2(AT_FDCWD, folder.c_str(), AT_FDCWD, link.c_str(), RENAME_EXCHANGE); },
         [&] {
             for (const char* name : {"/key", "/../mid/key", "/./key"}) {
                 const OpenedPath opened = world.policy->open(folder + name, O_RDONLY, 0, {});
                 if (opened.fd)
                     ++(first_bytes(opened) == "PUBLIC" ? opened_public : secrets);
             }
         });
    CHECK(secrets == 0);
    CHECK(opened_public > 0);
}

TEST_CASE("creating under a flipping folder makes nothing outside") {
    World world;
    const std::string folder = world.tmp / "rw/mid", link = world.tmp / "rw/midlink";
    fs::create_directories(folder);
    fs::create_symlink(world.tmp / "secret", link);
    int n = 0;
    race([&] { ::renameat2(AT_FDCWD, folder.c_str(), AT_FDCWD, link.c_str(), RENAME_EXCHANGE); },
         [&] {
             const std::string name = folder + "/n" + std::to_string(++n % 50);
             world.policy->open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600, {});
             world.call(SYS_mkdirat, AT_FDCWD, world.text(folder + "/d"), 0700);
             world.call(SYS_unlinkat, AT_FDCWD, world.text(folder + "/key"), 0);
             world.call(SYS_unlinkat, AT_FDCWD, world.text(folder + "/d"), AT_REMOVEDIR);
             world.call(SYS_symlinkat, world.text("x", 1), AT_FDCWD, world.text(folder + "/s"));
         });
    CHECK(read_file(world.tmp / "secret/key") == "SECRET");
    CHECK(std::distance(fs::directory_iterator(world.tmp / "secret"), fs::directory_iterator()) == 1);
}

TEST_CASE("a folder that is moved out and back while it is walked by ..") {
    World world;
    const std::string in = world.tmp / "rw/a/b", out = world.tmp / "secret/b";
    fs::create_directories(in);
    write_file(world.tmp / "rw/a/key", "PUBLIC");
    int secrets = 0;
    race(
        [&] {
            ::rename(in.c_str(), out.c_str());
            ::rename(out.c_str(), in.c_str());
        },
        [&] {
            // Beside a/b there is a/key; beside secret/b there is secret/key.
            const OpenedPath opened = world.policy->open(in + "/../key", O_RDONLY, 0, {});
            if (opened.fd && first_bytes(opened) != "PUBLIC")
                ++secrets;
        });
    CHECK(secrets == 0);
}
