#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "src/daemon/log_store.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"

using namespace kvmserver::daemon;

namespace {

struct Folder {
    std::filesystem::path path;
    Folder() {
        char name[] = "/tmp/kvmserver-logs-XXXXXX";
        path = ::mkdtemp(name);
    }
    ~Folder() { std::filesystem::remove_all(path); }
};

LogLine line_of(const std::string& function, std::string text) {
    LogLine line;
    line.function = function;
    line.version = 1;
    line.stream = "out";
    line.text = std::move(text);
    return line;
}

LogStore::Query of(const std::string& function, std::uint64_t after_id = 0, std::size_t last = 0) {
    LogStore::Query query;
    query.function = function;
    query.after_id = after_id;
    query.last = last;
    return query;
}

using Clock = std::chrono::steady_clock;

} // namespace

TEST_CASE("lines that are in the files only, in memory, and of a daemon before") {
    const Folder folder;
    LogLimits limits;
    limits.lines = 3;
    {
        LogStore store(folder.path, limits);
        store.add(line_of("hello", "0"));
    }
    LogStore store(folder.path, limits);
    for (int i = 1; i <= 5; ++i)
        store.add(line_of("hello", std::to_string(i)));
    store.add(line_of("other", "x"));
    std::string texts;
    const std::vector<LogLine> lines = store.lines(of("hello"));
    for (const LogLine& line : lines)
        texts += line.text;
    CHECK(texts == "012345");
    CHECK(store.lines(of("hello", lines[3].id)).size() == 2);
    CHECK(store.lines(of("hello", lines[1].id)).size() == 4);
    CHECK(store.lines({}).size() == 7);
    CHECK(store.lines(of("hello", 0, 2)).front().text == "4");
    store.forget("hello");
    CHECK(store.lines(of("hello")).empty());
}

TEST_CASE("who reads long logs does not hold up who adds a line") {
    const Folder folder;
    LogLimits limits;
    limits.file_bytes = 64 << 20;
    LogStore store(folder.path, limits);
    const int lines = kvmserver::test::amount(30'000);
    for (int i = 0; i < lines; ++i)
        store.add(line_of("hello", "one of very many lines"));
    const auto before = Clock::now();
    store.lines(of("hello"));
    const auto reading = Clock::now() - before;
    std::atomic<bool> ended = false, began = false;
    std::thread reader([&] {
        while (!ended) {
            store.lines(of("hello"));
            began = true;
        }
    });
    while (!began)
        std::this_thread::yield();
    // Who waits for a reader can add a line or two in the time that one reading takes.
    int added = 0;
    for (const auto end = Clock::now() + 5 * reading; Clock::now() < end; ++added) {
        store.add(line_of("other", "x"));
        std::this_thread::yield();
    }
    ended = true;
    reader.join();
    CHECK(added > 100);
}

TEST_CASE("a function's files stay below a limit of its own, and shrink when that is lowered") {
    const Folder folder;
    LogLimits limits;
    limits.lines = 1;
    LogStore store(folder.path, limits);
    const auto bytes = [&] {
        std::uintmax_t sum = 0;
        for (const auto& entry : std::filesystem::directory_iterator(folder.path / "hello"))
            sum += entry.file_size();
        return sum;
    };
    const auto add = [&](int count) {
        for (int i = 0; i < count; ++i)
            store.add(line_of("hello", std::string(1000, 'x')));
    };
    add(100);
    CHECK(bytes() > 100'000);
    store.limit("hello", 50'000);
    CHECK(bytes() <= 50'000);
    add(100);
    CHECK(bytes() <= 50'000);
    CHECK(bytes() > 20'000);
    store.add(line_of("hello", std::string(30'000, 'x'))); // alone more than a file may hold
    CHECK(bytes() <= 50'000);
    store.limit("hello", {});
    add(100);
    CHECK(bytes() > 100'000);
}
