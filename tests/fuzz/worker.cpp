// libFuzzer: the daemon and a process of a function that says and does what the input says. Every request
// gets its answer, whatever is told about one can be told to a client, and once the process is gone nothing
// is left of it.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "src/http/problem.hpp"
#include "tests/fuzz/support.hpp"
#include "tests/unit/daemon/functions.hpp"

using namespace kvmserver::daemon;
using namespace kvmserver::daemon::test;
using fuzz::Input;
using kvmserver::protocol::Kind;
using kvmserver::protocol::Message;
using kvmserver::request::Outcome;

namespace {

constexpr int kPatienceMs = 8'000;
constexpr std::size_t kMaxAsked = 6;

std::size_t open_files() {
    const auto all = std::filesystem::directory_iterator("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

std::shared_ptr<FunctionVersion> new_target(Functions& functions, Input& in) {
    FunctionVersion::Facts facts;
    facts.function = "f";
    facts.version = 1;
    facts.snapshot = functions.hold.digest();
    facts.max = 1 + in.byte() % 3;
    facts.queue = in.byte() % 4;
    facts.idle_ns = 3600ull * 1'000'000'000;
    auto version = std::make_shared<FunctionVersion>(facts);
    functions.pool.adopt(version);
    return version;
}

Message any_message(Input& in) {
    Message message;
    message.kind = in.byte() % 16 < 12 ? (in.byte() % 4 ? Kind::ready : Kind::ended) : static_cast<Kind>(in.byte());
    message.outcome = static_cast<Outcome>(in.byte() % 16 ? in.byte() % kvmserver::request::kOutcomes : in.byte());
    const bool large = in.byte() % 4 == 0;
    for (std::uint64_t* number : {&message.restore_us, &message.hot_bytes, &message.exec_us, &message.reset_us,
                                  &message.cpu_us, &message.dirty_pages, &message.exits})
        *number = large ? in.take<std::uint64_t>() : in.byte();
    message.hot_bytes = std::min<std::uint64_t>(message.hot_bytes, 1 << 20); // spare processes would have that much
    return message;
}

void tell(const std::optional<kvmserver::request::Problem>& problem) {
    if (problem)
        FUZZ_REQUIRE(kvmserver::http::problem_reply(*problem, "0123456789abcdef", true, false).find("\r\n\r\n") !=
                     std::string::npos);
}

void step(Functions& functions, const std::shared_ptr<FunctionVersion>& version, Worker& worker,
          std::vector<std::shared_ptr<Asker>>& askers, Input& in) {
    const unsigned what = in.byte();
    const std::uint8_t channel = in.byte();
    switch (what % 16) {
    case 0:
    case 1:
        if (askers.size() < kMaxAsked)
            askers.push_back(functions.ask(version));
        break;
    case 2:
    case 3: worker.act(Act::machine); break;
    case 4:
    case 5:
    case 6: worker.act_with(Act::send, channel, any_message(in)); break;
    case 7: worker.act(in.byte() % 2 ? Act::send : Act::send_file, channel, in.bytes(in.byte())); break;
    case 8: worker.act(Act::request, channel); break;
    case 9: worker.act(Act::reply, channel, in.bytes(in.byte())); break;
    case 10: worker.act(in.byte() % 2 ? Act::hang_up : Act::close, channel); break;
    case 11: {
        std::string text = in.byte() % 2 ? "kvmserver: " : "";
        text += in.text(in.byte()) + (in.byte() % 4 ? "\n" : "");
        worker.act(in.byte() % 2 ? Act::print : Act::complain, 0,
                   {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
        break;
    }
    case 12:
        if (!askers.empty())
            tell(askers[channel % askers.size()]->failure());
        break;
    case 13:
        if (!askers.empty())
            askers[channel % askers.size()] = functions.ask(version); // the one before has gone away
        break;
    case 14: {
        static constexpr std::uint8_t kSignals[] = {SIGKILL, SIGSEGV, SIGTERM};
        switch (in.byte() % 8) {
        case 0: worker.act_with(Act::exit, 0, in.byte()); break;
        case 1: worker.act_with(Act::die, 0, in.one_of(kSignals)); break;
        case 2: worker.act(Act::no_control); break;
        }
        break;
    }
    default:
        for (const VersionLive& live : functions.pool.live())
            FUZZ_REQUIRE(live.busy <= live.machines);
        functions.metrics.snapshot();
    }
}

// All processes that serve something are made to end, until none is left that does.
void end_all(Functions& functions, const std::shared_ptr<FunctionVersion>& version,
             const std::vector<std::shared_ptr<Asker>>& askers) {
    functions.pool.retire(version, WorkerPool::States::are_forgotten);
    for (int waited = 0;; ++waited) {
        bool over = functions.pool.sums().processes == 0 && functions.pool.quiet();
        for (const auto& asker : askers)
            over &= asker->answered(std::chrono::milliseconds(0));
        if (over)
            break;
        FUZZ_REQUIRE(waited < kPatienceMs);
        for (const auto& worker : std::vector(functions.workers.all()))
            if (worker->act(Act::assigned))
                worker->act_with(Act::die, 0, std::uint8_t{SIGKILL});
        ::poll(nullptr, 0, 1);
    }
    FUZZ_REQUIRE(functions.pool.sums().machines == 0);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static Functions functions(4);
    static std::size_t most_files = 0;
    Input in(data, size);
    {
        std::vector<std::shared_ptr<Asker>> askers;
        const auto version = new_target(functions, in);
        askers.push_back(functions.ask(version));
        const auto worker = functions.workers.assigned(kPatienceMs);
        FUZZ_REQUIRE(worker);
        for (int waited = 0; !worker->act(Act::machine) && !worker->gone(); ++waited) {
            FUZZ_REQUIRE(waited < kPatienceMs);
            ::poll(nullptr, 0, 1);
        }
        for (unsigned n = 0; n < 40 && !in.empty() && !worker->gone(); ++n)
            step(functions, version, *worker, askers, in);
        end_all(functions, version, askers);
        for (const auto& asker : askers) {
            tell(asker->problem());
            tell(asker->failure());
        }
    }
    for (const LogLine& line : functions.logs.lines({.function = "f", .last = 20}))
        FUZZ_REQUIRE(line.json().starts_with("{"));
    // Two spare processes at most, and what is on its way out.
    const std::size_t files = open_files();
    most_files = most_files == 0 ? files + 40 : most_files;
    FUZZ_REQUIRE(files <= most_files);
    return 0;
}
