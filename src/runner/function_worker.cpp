#include "src/runner/function_worker.hpp"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <list>
#include <optional>
#include <string>
#include <thread>

#include "src/runner/after_restore.hpp"
#include "src/runner/channel_arrivals.hpp"
#include "src/runner/request_machine.hpp"
#include "src/runner/restored.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

class FunctionWorker {
public:
    explicit FunctionWorker(FunctionOptions options)
        : begin_(host_mono_ns()), options_(std::move(options)),
          restored_(SnapshotReader::open(open_pieces_source(options_.pieces.get()), options_.name),
                    options_.machine, Restored::Sockets::none, hook()) {
        if (restored_.image()->listeners.empty())
            throw UserError(ExitCode::failure, options_.name + ": its program does not listen");
    }

    int run() {
        restored_.fill_behind([this] { fail(static_cast<int>(ExitCode::bad_snapshot)); });
        while (auto channel = next_channel()) {
            join(false);
            machines_.emplace_back();
            Thread& machine = machines_.back();
            machine.channel = std::move(*channel);
            machine.thread = std::thread([this, &machine] { serve(machine); });
        }
        join(true);
        return code_;
    }

private:
    struct Thread {
        UniqueFd channel;
        std::thread thread;
        std::atomic<bool> ended{false};
    };

    Restored::Change hook() {
        if (options_.after_restore.empty())
            return {};
        return [this](const Setup& setup, std::shared_ptr<const MachineImage> image) {
            return after_restore(setup, std::move(image), options_.after_restore,
                                 read_text(options_.values.get(), "the values of the function"));
        };
    }

    // Of a machine that is wanted; nothing: this is the end.
    std::optional<UniqueFd> next_channel() {
        for (;;) {
            pollfd fds[2] = {{options_.control.get(), POLLIN, 0}, {StopSignal::instance().fd(), POLLIN, 0}};
            if (::poll(fds, 2, -1) < 0 && errno != EINTR)
                throw_errno("poll");
            if (StopSignal::instance().requested())
                return std::nullopt;
            if (fds[0].revents == 0)
                continue;
            auto received = link::receive(options_.control.get(), link::Wait::no);
            if (!received || received->message.kind != link::Kind::add_machine || !received->fd)
                return std::nullopt;
            return std::move(received->fd);
        }
    }

    void serve(Thread& machine) {
        try {
            ChannelArrivals arrivals(machine.channel.get(), restored_.image()->listeners.front().id,
                                     first_.exchange(false) ? begin_ : 0, StopSignal::instance());
            RequestMachine request_machine(restored_.setup(), options_.machine, restored_.image(), arrivals,
                                           stats_, StopSignal::instance());
            request_machine.prepare();
            while (request_machine.serve_one()) {
            }
        } catch (const UserError& error) { // a part of the snapshot that is read late may be altered
            note_line(error.what());
            fail(static_cast<int>(error.code()));
        } catch (const std::exception& error) {
            note_line(error.what());
            fail(1);
        }
        machine.channel.reset(); // the machine is gone: the daemon may count on it
        machine.ended = true;
    }

    void fail(int code) {
        code_ = code;
        StopSignal::instance().request();
    }

    void join(bool all) {
        for (auto machine = machines_.begin(); machine != machines_.end();) {
            if (!all && !machine->ended) {
                ++machine;
                continue;
            }
            machine->thread.join();
            machine = machines_.erase(machine);
        }
    }

    const std::uint64_t begin_;
    FunctionOptions options_;
    Restored restored_;
    WorkerStats stats_;
    std::atomic<bool> first_{true};
    std::atomic<int> code_{0};
    std::list<Thread> machines_;
};

} // namespace

int run_function(FunctionOptions options) {
    StopSignal::instance();
    return FunctionWorker(std::move(options)).run();
}

} // namespace kvmserver
