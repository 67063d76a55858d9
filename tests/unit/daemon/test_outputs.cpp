// What processes print, by pipes of our own in place of theirs.
#include <fcntl.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "src/daemon/output_source.hpp"
#include "tests/catch.hpp"

using namespace kvmserver::daemon;
using tinykvm::UniqueFd;

namespace {

struct Pipe {
    Pipe() {
        int ends[2];
        REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        read.reset(ends[0]);
        write.reset(ends[1]);
    }
    void say(std::string_view text) const {
        REQUIRE(::write(write.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    }
    UniqueFd read, write;
};

class Told {
public:
    void add(LogLine line) {
        const std::lock_guard lock(mutex_);
        lines_.push_back(std::move(line));
        added_.notify_all();
    }
    // Once there are so many.
    std::vector<LogLine> wait(std::size_t count) {
        std::unique_lock lock(mutex_);
        REQUIRE(added_.wait_for(lock, std::chrono::seconds(30), [&] { return lines_.size() >= count; }));
        return lines_;
    }

private:
    std::mutex mutex_;
    std::condition_variable added_;
    std::vector<LogLine> lines_;
};

struct Program {
    explicit Program(std::uint64_t rate, const std::string& name = "hello")
        : outputs(rate, [this](LogLine line) { told.add(std::move(line)); }),
          source(outputs.add(name, 4, out.read.get(), errors.read.get())) {}
    std::vector<LogLine> finish() {
        std::vector<LogLine> lines;
        last_words = source->finish(lines);
        return lines;
    }
    Pipe out, errors;
    Told told;
    Outputs outputs;
    std::shared_ptr<Outputs::Source> source;
    std::string last_words;
};

} // namespace

TEST_CASE("what a process prints is told line by line, with who printed it") {
    Program program(0);
    program.out.say("one\ntwo\nthr");
    auto lines = program.told.wait(2);
    CHECK(lines[0].text == "one");
    CHECK(lines[0].function == "hello");
    CHECK(lines[0].version == 4);
    CHECK(lines[0].stream == "out");
    CHECK(lines[1].text == "two");
    program.out.say("ee\n");
    CHECK(program.told.wait(3)[2].text == "three");
    program.errors.say("oh\n");
    CHECK(program.told.wait(4)[3].stream == "err");
    program.errors.say("kvmserver: it broke\n");
    lines = program.told.wait(5);
    CHECK(lines[4].stream == "daemon");
    CHECK(lines[4].text == "it broke");
    program.finish();
    CHECK(program.last_words == "it broke");
}

TEST_CASE("a line belongs to the request that it was printed in, whenever it is read") {
    Program program(0);
    program.out.say("at boot\n");
    program.source->mark("first");
    program.out.say("of the first\n");
    program.source->mark("second");
    program.source->mark("");
    program.source->mark("third");
    program.out.say("of the third\nbegun by the third ");
    program.source->mark("");
    program.out.say("and ended later\n");
    const auto lines = program.told.wait(4);
    CHECK(lines[0].request_id.empty());
    CHECK(lines[1].request_id == "first");
    CHECK(lines[2].request_id == "third");
    CHECK(lines[3].request_id.empty());
    CHECK(lines[3].text == "begun by the third and ended later");
}

TEST_CASE("the last words of a process that has ended are not lost, the unfinished ones either") {
    Program program(0);
    program.errors.say("kvmserver: no memory\nunfinished");
    auto lines = program.finish();
    CHECK(program.last_words == "no memory");
    for (const auto& line : lines)
        program.told.add(line);
    lines = program.told.wait(2);
    CHECK(lines[1].text == "unfinished");
    CHECK(program.finish().empty());
}

TEST_CASE("a line without an end is told in pieces") {
    Program program(0);
    program.out.say(std::string(Outputs::kLongestLine + 10, 'x') + "\n");
    const auto lines = program.told.wait(2);
    CHECK(lines[0].text.size() == Outputs::kLongestLine);
    CHECK(lines[1].text == std::string(10, 'x'));
}

TEST_CASE("what is beyond the rate is dropped, and told") {
    Program program(1024);               // 8 KiB and a line at once
    const std::string line(64 - 1, 'y'); // with what a line costs 127 bytes
    std::string all;
    for (int i = 0; i < 500; ++i)
        all += line + "\n";
    program.out.say(all);
    const auto rest = program.finish();
    REQUIRE_FALSE(rest.empty());
    CHECK(rest.back().stream == "daemon");
    CHECK(rest.back().text.find("lines (") != std::string::npos);
    CHECK(rest.back().text.find("more than 1 KiB a second (serve --log-rate)") != std::string::npos);
    const std::size_t dropped = std::stoul(rest.back().text);
    CHECK(dropped > 400);
    CHECK(dropped < 500 - 8192 / 127);
    // All others were told, by the reader or at the end.
    CHECK(program.told.wait(500 - dropped - (rest.size() - 1)).size() == 500 - dropped - (rest.size() - 1));
}

TEST_CASE("one that prints too much does not use up what another one may print") {
    Program program(1024);
    Pipe out, errors;
    const auto quiet = program.outputs.add("quiet", 1, out.read.get(), errors.read.get());
    for (int i = 0; i < 100; ++i)
        program.out.say(std::string(300, 'z') + "\n");
    program.finish();
    out.say("still here\n");
    std::vector<LogLine> lines;
    for (std::size_t count = 1; lines.empty() || lines.back().function != "quiet"; ++count)
        lines = program.told.wait(count);
    CHECK(lines.back().text == "still here");
    std::vector<LogLine> rest;
    quiet->finish(rest);
}
