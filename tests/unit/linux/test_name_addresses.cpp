#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tinykvm/linux/name_addresses.hpp"
#include "tinykvm/linux/net_rules.hpp"

using namespace tinykvm;

namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

NetAddress at(const char* address, std::uint16_t port = 80) {
    NetAddress result = addresses_of(address).at(0);
    result.port = port;
    return result;
}

// A name service, and a clock.
struct NameService {
    std::optional<std::vector<NetAddress>> answer = std::vector{at("10.0.0.1", 0)};
    unsigned asked = 0;
    std::uint64_t now_ns = 1000 * kSecondNs;

    NameAddresses name() {
        return {"db.test",
                [this](const std::string& host) {
                    CHECK(host == "db.test");
                    ++asked;
                    return answer;
                },
                [this] { return now_ns; }};
    }
    void pass(double seconds) { now_ns += static_cast<std::uint64_t>(seconds * 1e9); }
};

} // namespace

TEST_CASE("a name's address may change") {
    NameService world;
    const NameAddresses name = world.name();
    CHECK(name.has(at("10.0.0.1")));
    CHECK(name.has(at("10.0.0.1", 443)));
    CHECK(world.asked == 1);
    world.answer = std::vector{at("10.0.0.2", 0), at("10.0.0.3", 0)};
    CHECK_FALSE(name.has(at("10.0.0.2"))); // too soon
    CHECK(world.asked == 1);
    world.pass(1.1);
    CHECK(name.has(at("10.0.0.2"))); // it was not known: looked up again
    CHECK(name.has(at("10.0.0.3")));
    CHECK(world.asked == 2);
    CHECK_FALSE(name.has(at("10.0.0.1"))); // no longer
}

TEST_CASE("an address that is no longer the name's is refused after ten seconds") {
    NameService world;
    const NameAddresses name = world.name();
    CHECK(name.has(at("10.0.0.1")));
    world.answer = std::vector<NetAddress>{};
    world.pass(9.9);
    CHECK(name.has(at("10.0.0.1")));
    world.pass(0.2);
    CHECK_FALSE(name.has(at("10.0.0.1")));
    CHECK_FALSE(name.has_any());
    CHECK(world.asked == 2);
}

TEST_CASE("strangers' addresses cause one look-up a second") {
    NameService world;
    const NameAddresses name = world.name();
    for (unsigned i = 0; i < 100; ++i) {
        CHECK_FALSE(name.has(at("10.9.9.9")));
        world.pass(0.1);
    }
    CHECK(world.asked <= 11);
}

TEST_CASE("without an answer the last one serves on") {
    NameService world;
    const NameAddresses name = world.name();
    CHECK(name.has(at("10.0.0.1")));
    world.answer = std::nullopt;
    world.pass(11);
    for (unsigned i = 0; i < 10; ++i) {
        CHECK(name.has(at("10.0.0.1")));
        world.pass(5);
    }
    CHECK(world.asked == 2); // each may take ten seconds
    world.answer = std::vector{at("10.0.0.2", 0)};
    world.pass(11);
    CHECK_FALSE(name.has(at("10.0.0.1")));
}

TEST_CASE("while nothing answers, an unknown address is asked for every ten seconds") {
    NameService world;
    world.answer = std::nullopt;
    const NameAddresses name = world.name();
    for (unsigned i = 0; i < 19; ++i) {
        CHECK_FALSE(name.has(at("10.0.0.1")));
        world.pass(1);
    }
    CHECK(world.asked == 2);
}

TEST_CASE("while one thread asks, the last answer serves the others") {
    std::mutex mutex;
    std::condition_variable changed;
    bool asking = false, answers = true;
    std::uint64_t now_ns = 1000 * kSecondNs; // guarded by `mutex`
    const NameAddresses name(
        "db.test",
        [&](const std::string&) {
            std::unique_lock lock(mutex);
            asking = true;
            changed.notify_all();
            changed.wait(lock, [&] { return answers; });
            return std::optional(std::vector{at("10.0.0.1", 0)});
        },
        [&] {
            const std::lock_guard lock(mutex);
            return now_ns;
        });
    CHECK(name.has(at("10.0.0.1")));
    {
        const std::lock_guard lock(mutex);
        answers = asking = false;
        now_ns += 11 * kSecondNs;
    }
    bool has = false;
    std::thread other([&] { has = name.has(at("10.0.0.1")); });
    {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return asking; });
    }
    CHECK(name.has(at("10.0.0.1"))); // does not wait
    {
        const std::lock_guard lock(mutex);
        answers = true;
    }
    changed.notify_all();
    other.join();
    CHECK(has);
}

TEST_CASE("the host's name service") {
    CHECK_FALSE(ask_name_service("localhost").value_or(std::vector<NetAddress>{}).empty());
}
