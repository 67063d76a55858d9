// Copies by way of the daemon: the process's side, against the daemon's own and against one that is gone.
#include "tests/catch.hpp"

#include <unistd.h>

#include <filesystem>
#include <thread>

#include "src/daemon/cache_service.hpp"
#include "src/runner/cache_client.hpp"

using namespace kvmserver;
using tinykvm::UniqueFd;
namespace fs = std::filesystem;

namespace {

using Bytes = std::vector<std::byte>;

Bytes pages_of(int seed, std::size_t pages = 5) {
    Bytes bytes(pages * 4096, static_cast<std::byte>(seed));
    bytes[0] = static_cast<std::byte>(seed >> 8);
    return bytes;
}
CopyName name_of(const Bytes& pages) { return {sha256(pages), pages.size()}; }

bool holds(const UniqueFd& copy, const Bytes& pages) {
    Bytes read(pages.size());
    return copy && ::pread(copy.get(), read.data(), read.size(), 0) == static_cast<ssize_t>(read.size()) &&
           read == pages;
}

struct Folder {
    Folder() {
        char name[] = "/tmp/kvmserver-client-XXXXXX";
        REQUIRE(::mkdtemp(name));
        path = name;
    }
    ~Folder() { fs::remove_all(path); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    fs::path path;
};

daemon::CacheGuest guest() { return {"one v1", "", {}, 1 << 30}; }

} // namespace

TEST_CASE("copies that are with the daemon") {
    const Folder folder;
    daemon::CacheService service{FolderCache(folder.path)};
    const CacheClient cache(service.connect(guest())), other(service.connect(guest()));
    CHECK(cache.usable());
    CHECK_FALSE(cache.find(name_of(pages_of(1))));
    CHECK(holds(cache.keep(name_of(pages_of(1)), pages_of(1)), pages_of(1)));
    CHECK(holds(other.find(name_of(pages_of(1))), pages_of(1)));
    for (int i = 2; i < 40; ++i) // more than may be on their way at once
        cache.offer(name_of(pages_of(i)), pages_of(i));
    CHECK_FALSE(cache.find(name_of(pages_of(1000)))); // those before are taken once this is answered
    for (int i = 2; i < 40; ++i)
        CHECK(holds(other.find(name_of(pages_of(i))), pages_of(i)));
}

TEST_CASE("what was offered is stored when the client has ended") {
    const Folder folder;
    daemon::CacheService service{FolderCache(folder.path)};
    std::vector<CopyName> names;
    for (int i = 0; i < 20; ++i)
        names.push_back(name_of(pages_of(i, 200)));
    {
        const CacheClient cache(service.connect(guest()));
        for (int i = 0; i < 20; ++i)
            cache.offer(names[static_cast<std::size_t>(i)], pages_of(i, 200));
    }
    const FolderCache stored(folder.path);
    for (int i = 20; i-- > 0;)
        CHECK(holds(stored.find(names[static_cast<std::size_t>(i)]), pages_of(i, 200)));
}

TEST_CASE("as many copies as one likes are asked for") {
    const Folder folder;
    daemon::CacheService service{FolderCache(folder.path)};
    const CacheClient cache(service.connect(guest()));
    for (const int i : {0, 63, 64, 199})
        REQUIRE(cache.keep(name_of(pages_of(i, 1)), pages_of(i, 1)));
    std::vector<CopyName> names;
    for (int i = 0; i < 200; ++i)
        names.push_back(name_of(pages_of(i, 1)));
    const auto found = cache.find_all(names);
    REQUIRE(found.size() == 200);
    for (int i = 0; i < 200; ++i)
        CHECK(static_cast<bool>(found[static_cast<std::size_t>(i)]) == (i == 0 || i == 63 || i == 64 || i == 199));
    CHECK(cache.find_all({}).empty());
}

TEST_CASE("threads ask at the same time") {
    const Folder folder;
    daemon::CacheService service{FolderCache(folder.path)};
    const CacheClient cache(service.connect(guest()));
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 20; ++i) {
                const Bytes pages = pages_of(t * 20 + i);
                if (i % 2 == 0)
                    cache.offer(name_of(pages), pages);
                right += holds(cache.keep(name_of(pages), pages), pages);
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    CHECK(right == 80);
}

TEST_CASE("pages that the name does not say: none, and none from then on") {
    const Folder folder;
    daemon::CacheService service{FolderCache(folder.path)};
    const CacheClient cache(service.connect(guest()));
    CHECK_FALSE(cache.keep(name_of(pages_of(2)), pages_of(1)));
    CHECK_FALSE(cache.usable());
    CHECK_FALSE(cache.keep(name_of(pages_of(1)), pages_of(1)));
    CHECK(fs::is_empty(folder.path));
}

TEST_CASE("a daemon that has none, or is gone") {
    const CacheClient none{UniqueFd()};
    CHECK_FALSE(none.usable());
    CHECK_FALSE(none.find(name_of(pages_of(1))));
    CHECK_FALSE(none.keep(name_of(pages_of(1)), pages_of(1)));
    none.offer(name_of(pages_of(1)), pages_of(1));
    const Folder folder;
    auto service = std::make_unique<daemon::CacheService>(FolderCache(folder.path));
    const CacheClient cache(service->connect(guest())), offering(service->connect(guest()));
    REQUIRE(cache.keep(name_of(pages_of(1)), pages_of(1)));
    service.reset();
    CHECK_FALSE(cache.find(name_of(pages_of(1))));
    CHECK_FALSE(cache.usable());
    offering.offer(name_of(pages_of(1)), pages_of(1));
    CHECK_FALSE(offering.usable());
}
