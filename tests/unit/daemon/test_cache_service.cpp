// The cache's service against processes of functions that are sound, and such that are not.
#include "tests/catch.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <thread>

#include "src/daemon/cache_service.hpp"
#include "src/daemon/worker_pool.hpp"

using namespace kvmserver;
using namespace kvmserver::daemon;
using protocol::CacheEntry;
using protocol::CacheKind;
using tinykvm::UniqueFd;
namespace fs = std::filesystem;

namespace {

using Bytes = std::vector<std::byte>;

class TempFolder {
public:
    TempFolder() {
        char path[] = "/tmp/kvmserver-cache-XXXXXX";
        REQUIRE(::mkdtemp(path));
        path_ = path;
    }
    ~TempFolder() { fs::remove_all(path_); }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    fs::path cache() const { return path_ / "cache"; }
    std::size_t copies() const {
        return fs::exists(cache()) ? static_cast<std::size_t>(std::distance(fs::directory_iterator(cache()), {})) : 0;
    }

private:
    fs::path path_;
};

Bytes pages_of(int seed, std::size_t pages = 3) { return Bytes(pages * 4096, static_cast<std::byte>(seed)); }
CacheEntry entry_of(const Bytes& pages) { return {sha256(pages).bytes, static_cast<std::uint32_t>(pages.size())}; }

UniqueFd memfd_of(const Bytes& bytes, int seals = protocol::cache_seals()) {
    UniqueFd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    REQUIRE(::fcntl(file.get(), F_ADD_SEALS, seals) == 0);
    return file;
}

bool holds(const UniqueFd& copy, const Bytes& pages) {
    Bytes read(pages.size());
    return copy && ::pread(copy.get(), read.data(), read.size(), 0) == static_cast<ssize_t>(read.size()) &&
           read == pages && (::fcntl(copy.get(), F_GETFL) & O_ACCMODE) == O_RDONLY;
}

std::size_t open_descriptors() {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), {}));
}

CacheGuest guest_of(const std::string& name, std::uint64_t most = 1 << 30, const std::string& tenant = "") {
    return {name, tenant, sha256(name), most};
}

// What a process asks. Nothing: it is not heard any more.
std::optional<std::vector<UniqueFd>> find(const UniqueFd& socket, const std::vector<CacheEntry>& entries) {
    if (!protocol::send_request(socket.get(), CacheKind::find, entries))
        return std::nullopt;
    return protocol::receive_answer(socket.get(), entries.size());
}

std::optional<std::vector<UniqueFd>> keep(const UniqueFd& socket, const CacheEntry& entry, int file) {
    if (!protocol::send_request(socket.get(), CacheKind::keep, std::span(&entry, 1), file))
        return std::nullopt;
    return protocol::receive_answer(socket.get(), 1);
}

struct Served {
    TempFolder folder;
    std::promise<std::string> told; // of the first that is broken
    std::atomic<int> broken{0};
    CacheService service{FolderCache(folder.cache()), [this](const std::string& line) {
                             if (broken++ == 0)
                                 told.set_value(line);
                         }};
    UniqueFd good = service.connect(guest_of("good v1"));

    // What was said of it, once it is not heard any more and the others are.
    std::string end_of(const UniqueFd& socket) {
        CHECK_FALSE(protocol::receive_answer(socket.get(), 1));
        const std::string line = told.get_future().get();
        CHECK(line.starts_with("bad v1: its process violates the cache protocol: it "));
        CHECK(folder.copies() == 0);
        const Bytes pages = pages_of(99);
        const UniqueFd file = memfd_of(pages);
        const auto kept = keep(good, entry_of(pages), file.get());
        REQUIRE(kept);
        CHECK(holds(kept->front(), pages));
        CHECK(broken == 1);
        return line;
    }
};

std::string end_of_handing_over(const CacheEntry& entry, const UniqueFd& file) {
    Served served;
    const UniqueFd bad = served.service.connect(guest_of("bad v1"));
    REQUIRE(protocol::send_request(bad.get(), GENERATE(CacheKind::keep, CacheKind::offer), std::span(&entry, 1),
                                   file.get()));
    return served.end_of(bad);
}

std::string end_of_saying(const std::vector<std::uint8_t>& bytes, const std::vector<int>& files = {}) {
    Served served;
    const UniqueFd bad = served.service.connect(guest_of("bad v1"));
    REQUIRE(protocol::send_packet(bad.get(), std::as_bytes(std::span(bytes)), files, protocol::Wait::yes));
    return served.end_of(bad);
}

} // namespace

TEST_CASE("what one process hands over another one gets") {
    Served served;
    const UniqueFd one = served.service.connect(guest_of("one v1")), two = served.service.connect(guest_of("two v1"));
    const Bytes a = pages_of(1), b = pages_of(2), c = pages_of(3);
    const UniqueFd file = memfd_of(a), other = memfd_of(b);
    const auto none = find(one, {entry_of(a), entry_of(b)});
    REQUIRE(none);
    CHECK_FALSE(none->at(0));
    CHECK_FALSE(none->at(1));
    const auto kept = keep(one, entry_of(a), file.get());
    REQUIRE(kept);
    CHECK(holds(kept->front(), a));
    const CacheEntry offered = entry_of(b);
    REQUIRE(protocol::send_request(one.get(), CacheKind::offer, std::span(&offered, 1), other.get()));
    REQUIRE(find(one, {entry_of(c)})); // it was taken before this was answered
    const auto found = find(two, {entry_of(c), entry_of(b), entry_of(a)});
    REQUIRE(found);
    CHECK_FALSE(found->at(0));
    CHECK(holds(found->at(1), b));
    CHECK(holds(found->at(2), a));
    const auto again = keep(two, entry_of(a), file.get()); // there already
    REQUIRE(again);
    CHECK(holds(again->front(), a));
    CHECK(served.folder.copies() == 2);
    CHECK(served.broken == 0);
}

TEST_CASE("without room for its descriptor there is no copy, and nobody is to blame") {
    Served served;
    const UniqueFd one = served.service.connect(guest_of("one v1"));
    const Bytes pages = pages_of(1);
    const UniqueFd file = memfd_of(pages);
    const CacheEntry entry = entry_of(pages);
    REQUIRE(keep(one, entry_of(pages_of(2)), memfd_of(pages_of(2)).get())); // what it opens only once is open
    rlimit usual{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &usual) == 0);
    const int next = ::dup(file.get()); // the lowest number that is free
    REQUIRE(next >= 0);
    ::close(next);
    const rlimit few{static_cast<rlim_t>(next), usual.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    const bool offered = protocol::send_request(one.get(), CacheKind::offer, std::span(&entry, 1), file.get());
    const auto kept = keep(one, entry, file.get());
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &usual) == 0);
    REQUIRE(offered);
    REQUIRE(kept);
    CHECK_FALSE(kept->front());
    const auto later = keep(one, entry, file.get());
    REQUIRE(later);
    CHECK(holds(later->front(), pages));
    CHECK(served.broken == 0);
}

TEST_CASE("tenants do not share") {
    Served served;
    const UniqueFd one = served.service.connect(guest_of("one v1", 1 << 30, "one")),
                   same = served.service.connect(guest_of("same v1", 1 << 30, "one")),
                   two = served.service.connect(guest_of("two v1", 1 << 30, "two"));
    const Bytes pages = pages_of(1);
    const UniqueFd file = memfd_of(pages);
    REQUIRE(keep(one, entry_of(pages), file.get()));
    CHECK(holds(find(same, {entry_of(pages)})->front(), pages));
    CHECK_FALSE(find(two, {entry_of(pages)})->front());
    CHECK_FALSE(find(served.good, {entry_of(pages)})->front());
}

TEST_CASE("a copy of other bytes than it says") {
    const Bytes pages = pages_of(1);
    CHECK(end_of_handing_over(entry_of(pages_of(2)), memfd_of(pages)).find("announced digest") != std::string::npos);
}

TEST_CASE("a copy that could still be changed") {
    const Bytes pages = pages_of(1);
    const int seals = GENERATE(0, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SEAL, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
                               F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_SEAL, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
    CHECK(end_of_handing_over(entry_of(pages), memfd_of(pages, seals)).find("not a sealed memfd") != std::string::npos);
}

TEST_CASE("a copy of another length than it says") {
    const Bytes pages = pages_of(1);
    CacheEntry entry = entry_of(pages);
    SECTION("a memfd that is longer") { entry.bytes -= 4096; }
    SECTION("a memfd that is shorter") { entry.bytes += 4096; }
    CHECK(end_of_handing_over(entry, memfd_of(pages)).find("length is not the announced one") != std::string::npos);
}

TEST_CASE("a copy of a size that none has") {
    CacheEntry entry = entry_of(pages_of(1));
    entry.bytes = GENERATE(0u, 1u, 4095u, 4097u, (4u << 20) + 4096, 1u << 31, ~0u);
    CHECK(end_of_handing_over(entry, memfd_of(pages_of(1))).find("named a copy of ") != std::string::npos);
    Served served;
    const UniqueFd bad = served.service.connect(guest_of("bad v1"));
    REQUIRE(protocol::send_request(bad.get(), CacheKind::find, std::span(&entry, 1)));
    served.end_of(bad);
}

TEST_CASE("what is no memfd") {
    int pipe[2];
    REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
    const UniqueFd reader(pipe[0]), writer(pipe[1]);
    const char* path = GENERATE("/etc/passwd", "/etc", "/dev/zero", "");
    const UniqueFd file(*path ? ::open(path, O_RDONLY | O_CLOEXEC) : ::dup(reader.get()));
    CHECK(end_of_handing_over(entry_of(pages_of(1)), file).find("not a sealed memfd") != std::string::npos);
}

TEST_CASE("a socket whose closing takes for ever") {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), bytes) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
    UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), bytes) == 0);
    UniqueFd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(peer);
    const Bytes block(1 << 16);
    while (::send(client.get(), block.data(), block.size(), MSG_DONTWAIT) > 0) { // what the peer does not read
    }
    const linger wait{1, 100'000};
    REQUIRE(::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait) == 0);
    Served served;
    const UniqueFd bad = served.service.connect(guest_of("bad v1"));
    const CacheEntry entry = entry_of(pages_of(1));
    REQUIRE(protocol::send_request(bad.get(), CacheKind::keep, std::span(&entry, 1), client.get()));
    // Aside: it waits too if the service has closed its own already.
    std::jthread closes([&] { client.reset(); });
    const std::string line = served.told.get_future().get();
    CHECK(line.find("not a sealed memfd") != std::string::npos);
    CHECK(find(served.good, {entry}));
    peer.reset(); // ends all waiting
}

TEST_CASE("what is no request") {
    const UniqueFd file = memfd_of(pages_of(1));
    const auto request = [](std::uint32_t kind, std::uint32_t count, std::size_t entries) {
        std::vector<std::uint8_t> bytes(8 + entries * sizeof(CacheEntry));
        std::memcpy(bytes.data(), &kind, 4);
        std::memcpy(bytes.data() + 4, &count, 4);
        return bytes;
    };
    SECTION("too short") { end_of_saying({1, 0, 0}); }
    SECTION("no names") { end_of_saying(request(1, 0, 0)); }
    SECTION("more names than it says") { end_of_saying(request(1, 1, 2)); }
    SECTION("fewer names than it says") { end_of_saying(request(1, 2, 1)); }
    SECTION("as many as nobody may ask for") { end_of_saying(request(1, 65, 63)); }
    SECTION("an unknown kind") { end_of_saying(request(GENERATE(0u, 4u, ~0u), 1, 1)); }
    SECTION("a question with a file") { end_of_saying(request(1, 1, 1), {file.get()}); }
    SECTION("no file") { end_of_saying(request(2, 1, 1)); }
    SECTION("two files") { end_of_saying(request(3, 1, 1), {file.get(), file.get()}); }
    SECTION("as many files as there can be") {
        end_of_saying(request(2, 1, 1), std::vector<int>(protocol::kMaxFiles, file.get()));
    }
}

TEST_CASE("a message that is too long") {
    Served served;
    const UniqueFd bad = served.service.connect(guest_of("bad v1"));
    const int room = 1 << 20; // its own end is its own
    REQUIRE(::setsockopt(bad.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
    REQUIRE(protocol::send_packet(bad.get(), Bytes(100'000, std::byte{1}), {}, protocol::Wait::yes));
    served.end_of(bad);
}

TEST_CASE("names are bytes, and no paths") {
    Served served;
    CacheEntry entry = entry_of(pages_of(1));
    const char path[33] = "../../../../../../../etc/passwd\0";
    std::memcpy(entry.sha256.data(), path, 32);
    const auto found = find(served.good, {entry});
    REQUIRE(found);
    CHECK_FALSE(found->front());
}

TEST_CASE("who takes no answers gets no more") {
    Served served;
    const UniqueFd bad = served.service.connect(guest_of("bad v1"));
    const CacheEntry entry = entry_of(pages_of(1));
    for (int i = 0; i < 2; ++i)
        REQUIRE(protocol::send_request(bad.get(), CacheKind::find, std::span(&entry, 1)));
    CHECK(served.told.get_future().get().find("does not read its answers") != std::string::npos);
    CHECK(protocol::receive_answer(bad.get(), 1)); // the first
    CHECK_FALSE(protocol::receive_answer(bad.get(), 1));
}

TEST_CASE("who asks too often waits, and nobody else does") {
    Served served;
    const UniqueFd often = served.service.connect(guest_of("often v1"));
    std::atomic<std::uint64_t> asked{0};
    std::thread asking([&] {
        const std::vector<CacheEntry> entries(protocol::kMaxCopies, entry_of(pages_of(1)));
        while (find(often, entries))
            asked += entries.size();
    });
    const std::uint64_t begin = now_ns();
    while (asked < CacheService::kMaxNames + 2 * protocol::kMaxCopies) // more than it may at once
        REQUIRE(find(served.good, {entry_of(pages_of(2))}));
    for (int i = 0; i < 100; ++i)
        REQUIRE(find(served.good, {entry_of(pages_of(2))}));
    const std::uint64_t seconds = (now_ns() - begin) / 1'000'000'000 + 1;
    CHECK(asked <= CacheService::kMaxNames + 2 * protocol::kMaxCopies + seconds * CacheService::kNamesASecond);
    ::shutdown(often.get(), SHUT_RDWR);
    asking.join();
    CHECK(served.broken == 0);
}

TEST_CASE("a version may hand over as much as its snapshot holds") {
    Served served;
    const std::uint64_t most = 2 * 3 * 4096;
    const UniqueFd one = served.service.connect(guest_of("one v1", most)),
                   same = served.service.connect(guest_of("one v1", most)),
                   other = served.service.connect(guest_of("other v1", most));
    const auto keeps = [](const UniqueFd& socket, int seed) {
        const Bytes pages = pages_of(seed);
        const UniqueFd file = memfd_of(pages);
        const auto kept = keep(socket, entry_of(pages), file.get());
        REQUIRE(kept);
        return static_cast<bool>(kept->front());
    };
    CHECK(keeps(one, 1));
    CHECK(keeps(same, 2));
    CHECK_FALSE(keeps(one, 3));
    CHECK_FALSE(keeps(same, 4));
    CHECK(keeps(one, 2)); // it is there
    CHECK(keeps(other, 3));
    CHECK(served.folder.copies() == 3);
    CHECK(served.broken == 0);
}

TEST_CASE("nothing stays of those that are gone") {
    Served served;
    const Bytes pages = pages_of(1);
    const UniqueFd file = memfd_of(pages);
    const auto before = open_descriptors();
    for (int i = 0; i < 20; ++i) {
        const UniqueFd socket = served.service.connect(guest_of("one v1"));
        REQUIRE(keep(socket, entry_of(pages), file.get()));
        const CacheEntry entry = entry_of(pages);
        REQUIRE(protocol::send_request(socket.get(), CacheKind::offer, std::span(&entry, 1), file.get()));
    }
    while (open_descriptors() > before) // each is seen to be gone
        REQUIRE(find(served.good, {entry_of(pages)}));
    CHECK(open_descriptors() == before);
}

TEST_CASE("without a folder that can be used there are no copies") {
    const TempFolder folder;
    CacheService service{FolderCache(folder.cache() / "no" / "such" / "folder")};
    CHECK_FALSE(service.connect(guest_of("one v1")));
    fs::create_directory(folder.cache());
    fs::permissions(folder.cache(), fs::perms(0755));
    CacheService others{FolderCache(folder.cache())};
    CHECK_FALSE(others.connect(guest_of("one v1")));
}

TEST_CASE("a folder that goes away is no harm") {
    Served served;
    const Bytes pages = pages_of(1);
    const UniqueFd file = memfd_of(pages);
    REQUIRE(holds(keep(served.good, entry_of(pages), file.get())->front(), pages));
    fs::remove_all(served.folder.cache());
    REQUIRE(UniqueFd(::open(served.folder.cache().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)));
    CHECK_FALSE(find(served.good, {entry_of(pages)})->front());
    CHECK_FALSE(keep(served.good, entry_of(pages), file.get())->front());
    fs::remove(served.folder.cache());
    CHECK(holds(keep(served.good, entry_of(pages), file.get())->front(), pages));
}

TEST_CASE("an allowance comes back with time") {
    kvmserver::protocol::Allowance allowance(100, 1000, 0);
    CHECK(allowance.take(60, 0));
    CHECK_FALSE(allowance.take(60, 0));
    CHECK(allowance.wait_ns(60, 0) > 199);
    CHECK(allowance.wait_ns(60, 0) <= 202);
    CHECK(allowance.take(60, 210));
    CHECK_FALSE(allowance.full(210));
    CHECK(allowance.full(100'000));
    CHECK(allowance.take(100, 100'000));
    CHECK_FALSE(allowance.take(1, 100'000));
}
