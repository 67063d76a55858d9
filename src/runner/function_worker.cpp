#include "src/runner/function_worker.hpp"

#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/capture/after_restore.hpp"
#include "src/capture/random_state.hpp"
#include "src/ceilings/claims.hpp"
#include "src/jail/enter.hpp"
#include "src/jail/spawn.hpp"
#include "src/runner/assignment.hpp"
#include "src/runner/cache_client.hpp"
#include "src/runner/connections/channel_connections.hpp"
#include "src/runner/kept_machine.hpp"
#include "src/runner/later_pieces.hpp"
#include "src/runner/request_machine.hpp"
#include "src/runner/restored.hpp"
#include "src/runner/saved_state.hpp"
#include "src/runner/state_saver.hpp"
#include "src/runner/storage_client.hpp"
#include "src/setup/huge_pages.hpp"
#include "src/setup/report.hpp"
#include "src/snapshot/reader.hpp"
#include "tinykvm/base/descriptor_table.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/machine/runtime_files.hpp"
#include "tinykvm/memory/dirty_pages.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

// How long a process that prepares for a machine from another daemon waits for its next part, or to be needed.
constexpr int kArrivalMs = 120'000;

// How long one whose machine was saved waits for requests before it gives memory back.
constexpr int kSavedMs = 100;

// A snapshot of more pieces than this has so many copies of chunks, too, that 64 descriptors are not enough.
constexpr std::size_t kFewPieces = 16;
constexpr int kDescriptorsOfManyPieces = 512; // 4 KiB of kernel memory

class FunctionWorker {
public:
    FunctionWorker(FunctionOptions options, Assignment assignment, Restored::Ahead ahead)
        : begin_(host_mono_ns()), options_(with(std::move(options), assignment)), assignment_(std::move(assignment)),
          restored_(checked(SnapshotReader::open(
                        open_received(assignment_.list.get(), std::move(assignment_.pieces), assignment_.name),
                        assignment_.name)),
                    std::make_shared<CacheClient>(std::move(assignment_.cache)), options_.machine,
                    Restored::Sockets::none, change(), std::move(ahead)) {
        if (assignment_.storage) {
            storage_ = std::make_unique<StorageClient>(std::move(assignment_.storage), note_line);
            restored_.setup().env.neighbours = storage_.get();
        }
        changed_ = restored_.changed();
        if (assignment_.suspends)
            saver_.emplace(restored_.setup());
        if (restored_.image()->listeners.empty())
            throw UserError(ExitCode::failure, assignment_.name + ": its program does not listen");
        if (assignment_.after_restore.empty()) // otherwise that request brings the environment
            for (const std::string& problem : restored_.env_problems())
                note_line(problem);
    }

    int run() {
        restored_.fill_behind([this] { fail(static_cast<int>(ExitCode::bad_snapshot)); });
        if (assignment_.kept)
            return run_kept();
        while (auto channel = next_channel()) {
            join(false);
            machines_.emplace_back();
            Thread& machine = machines_.back();
            machine.channel = std::move(*channel);
            try {
                machine.thread = std::thread([this, &machine] { serve(machine); });
                // Its channel closes, so the daemon does not count on this machine.
            } catch (const std::system_error& error) {
                note_line(std::string("a machine has no thread: ") + error.what());
                machines_.pop_back();
            }
        }
        if (StopSignal::instance().requested())
            for (const Thread& machine : machines_) // wake those that wait for a request
                ::shutdown(machine.channel.get(), SHUT_RD);
        join(true);
        return code_;
    }

private:
    struct Thread {
        UniqueFd channel;
        std::thread thread;
        std::atomic<bool> ended{false};
    };

    static FunctionOptions with(FunctionOptions options, const Assignment& assignment) {
        options.machine.env = assignment.environment;
        options.machine.ceilings = assignment.ceilings;
        options.machine.permissions.always_own_folders = true;
        options.machine.huge_pages.reserved = false; // they are the host's, and no control group would count them
        return options;
    }

    // The snapshot may have been deployed under other ceilings, or have reached the store in another way.
    SnapshotReader checked(SnapshotReader reader) {
        if (assignment_.suspends)
            base_ = base_of(reader.state());
        const Claims claims = claims_of(reader.state());
        std::string text;
        for (const Ceilings& each : assignment_.ceilings)
            for (const Excess& excess : claims_above(each, claims)) {
                if (excess.fatal)
                    throw UserError(ExitCode::not_permitted, fmt::format("{} needs more than it is granted: {}",
                                                                         assignment_.name, text_of({excess})));
                if (assignment_.report_excess)
                    text += (text.empty() ? "" : "; ") + text_of({excess});
            }
        if (!text.empty())
            note_line(fmt::format("{} asks for more than it is granted, and runs with what is granted: {}",
                                  assignment_.name, text));
        return reader;
    }

    // What becomes of the snapshot's image before there are machines.
    ImageChange change() {
        if (assignment_.state)
            return {.apply = [this](const Setup& setup, const std::shared_ptr<MachineImage>& image,
                                    std::vector<Frame>& changed) {
                return resume_state(
                    setup, *image, assignment_.state.get(), base_, assignment_.name, [this] { return state_bytes(); },
                    changed);
            }};
        if (assignment_.after_restore.empty())
            return {.apply = {}, .recurs = assignment_.suspends};
        return {.apply =
                    [this](const Setup& setup, std::shared_ptr<MachineImage> image, std::vector<Frame>& changed) {
                        return after_restore(setup, std::move(image), assignment_.after_restore,
                                             read_text(assignment_.values.get(), "the values of the function"),
                                             &changed);
                    },
                .makes_machines = true};
    }

    // What there is of the state. Then, while another daemon sends it, waits for its next part; nothing: there is none.
    std::optional<std::uint64_t> state_bytes() {
        if (assignment_.state_bytes)
            return std::exchange(assignment_.state_bytes, std::nullopt);
        if (!assignment_.state_grows)
            return std::nullopt;
        pollfd told{options_.control.get(), POLLIN, 0};
        const bool in_time = ::poll(&told, 1, kArrivalMs) > 0;
        const auto received = in_time ? protocol::receive(options_.control.get(), protocol::Wait::no) : std::nullopt;
        if (!received || received->message.kind != protocol::Kind::state)
            throw UserError(ExitCode::failure, assignment_.name + ": its state did not arrive");
        assignment_.state_grows = received->message.more_follows != 0;
        begin_ = host_mono_ns();
        arrived_ = true;
        return received->message.state_bytes;
    }

    // The channel of the next machine that the daemon wants; nothing when this process is to end.
    std::optional<UniqueFd> next_channel() {
        for (;;) {
            pollfd fds[2] = {{options_.control.get(), POLLIN, 0}, {StopSignal::instance().fd(), POLLIN, 0}};
            const int polled = ::poll(fds, 2, arrived_ ? kArrivalMs : saved_ ? kSavedMs : -1);
            if (polled < 0 && errno != EINTR)
                throw_errno("poll");
            if (polled == 0 && arrived_) // the other daemon has gone
                return std::nullopt;
            if (polled == 0) {
                saved_ = false;
                give_memory_back();
            }
            if (StopSignal::instance().requested())
                return std::nullopt;
            if (fds[0].revents == 0)
                continue;
            auto received = protocol::receive(options_.control.get(), protocol::Wait::no);
            if (received && received->message.kind == protocol::Kind::suspend && assignment_.suspends)
                suspend_to_ = std::move(received->fd);
            if (received && received->message.kind == protocol::Kind::checkpoint && assignment_.suspends) {
                const bool both = bool(checkpoint_to_);
                (both ? checkpoint_done_ : checkpoint_to_) = std::move(received->fd);
                if (!both)
                    continue;
            }
            if (!received || received->message.kind != protocol::Kind::add_machine || !received->fd)
                return std::nullopt;
            arrived_ = saved_ = false;
            return std::move(received->fd);
        }
    }

    // One machine, for as long as its state cannot be saved when that is wanted.
    int run_kept() {
        make_kept(begin_);
        for (;;) {
            std::thread thread;
            while (auto channel = next_channel()) {
                if (!kept_)
                    make_kept(host_mono_ns());
                if (!thread.joinable())
                    thread = std::thread([this] { serve_kept(); });
                kept_->add(std::move(*channel));
            }
            if (kept_ && StopSignal::instance().requested())
                kept_->stop();
            else if (kept_)
                kept_->end();
            if (thread.joinable())
                thread.join();
            const bool wants_checkpoint = bool(checkpoint_done_);
            if (suspend_to_ && code_ == 0)
                run_machine([&] { saved_ = suspend(); });
            else if (wants_checkpoint && code_ == 0)
                run_machine([&] { checkpoint(); });
            if ((!suspend_to_ && !wants_checkpoint) || code_ != 0)
                return code_;
            suspend_to_.reset();
            checkpoint_to_.reset();
            checkpoint_done_.reset();
            if (!saved_)
                tell(protocol::Kind::unsaved);
        }
    }

    void tell(protocol::Kind kind) {
        protocol::Message message;
        message.kind = kind;
        protocol::send(options_.control.get(), message); // if the daemon has gone, the next receive() tells it
    }

    void make_kept(std::uint64_t begin) {
        kept_ =
            std::make_unique<KeptMachine>(restored_.setup(), restored_.image(), assignment_.name, assignment_.suspends,
                                          ChannelConnections::First{begin, restored_.hot_bytes()}, ports());
        if (options_.on_machine)
            options_.on_machine(assignment_.name, assignment_.environment);
    }

    // Ends the process if a machine cannot go on.
    template <class Action>
    void run_machine(const Action& action) {
        try {
            action();
        } catch (const UserError& error) { // a part of the snapshot that is read later may be damaged
            note_line(error.what());
            fail(static_cast<int>(error.code()));
        } catch (const std::exception& error) {
            note_line(error.what());
            fail(1);
        }
    }

    void serve_kept() {
        run_machine([this] {
            if (!kept_->serve())
                fail(1);
        });
    }

    // The image of the machine, and the machine, which nothing may use; null if there is none. False if the machine
    // does not become quiet: it stays, unless fail() was called.
    bool take_image(std::shared_ptr<MachineImage>& image, std::unique_ptr<Machine>& machine) {
        restored_.stop_filling();
        saver_->finish();
        if (!kept_)
            return true;
        bool ended = false;
        machine = kept_->take_quiet(ended);
        if (ended)
            fail(1);
        if (!machine)
            return false;
        const auto* const found = knows_random_state_ || !saver_->found() ? nullptr : &*saver_->found();
        MergedMachine merged = image_of(std::move(*machine), restored_.image()->image, found);
        image = std::move(merged.image);
        knows_random_state_ = merged.knows_random_state && (found || knows_random_state_);
        kept_.reset();
        changed_.insert(changed_.end(), merged.changed.begin(), merged.changed.end());
        std::erase_if(changed_, [&](Frame frame) { return std::ranges::binary_search(merged.unused, frame); });
        saver_->changed(merged.changed);
        return true;
    }

    // Whether the state is saved. The machine can go on in any case, unless fail() was called.
    bool suspend() {
        std::shared_ptr<MachineImage> image;
        std::unique_ptr<Machine> machine; // to end it takes a while
        if (!take_image(image, machine))
            return false;
        bool saved = false;
        try {
            MachineImage& last = image ? *image : *restored_.image(); // of which there is no machine
            if (!knows_random_state_ && !image && saver_->found())
                set_random_state(last, *saver_->found());
            else if (!knows_random_state_)
                find_random_state(last, "");
            knows_random_state_ = true;
            saver_->save(last, suspend_to_.get(), base_, changed_);
            tell(protocol::Kind::saved);
            saved = true;
        } catch (const HostError& error) { // such as a disk that is full
            note_line(error.what());
        }
        machine.reset();
        if (image)
            restored_.replace_image(std::move(image), changed_);
        return saved;
    }

    // The machine can go on, unless fail() was called.
    void checkpoint() {
        std::shared_ptr<MachineImage> image;
        std::unique_ptr<Machine> machine;
        if (!take_image(image, machine))
            return;
        machine.reset();
        if (image)
            restored_.replace_image(std::move(image), changed_);
        saver_->save_behind(restored_.image(), !knows_random_state_, std::move(checkpoint_to_), base_, changed_,
                            std::move(checkpoint_done_));
    }

    // What only machines need.
    void give_memory_back() {
        restored_.share_hot();
        SnapshotReader::drop_buffers();
        ::malloc_trim(0);
    }

    void serve(Thread& machine) {
        run_machine([&] {
            ChannelConnections source(machine.channel.get(), restored_.image()->listeners.front().id,
                                      first_.exchange(false) ? ChannelConnections::First{begin_, restored_.hot_bytes()}
                                                             : ChannelConnections::First{},
                                      StopSignal::instance(), ports());
            RequestMachine request_machine(restored_.setup(), options_.machine, restored_.image(), source, stats_,
                                           StopSignal::instance());
            request_machine.prepare();
            if (const auto pages = request_machine.arena_pages())
                std::call_once(arena_told_, tell_arena, *pages, false);
            if (options_.on_machine)
                options_.on_machine(assignment_.name, assignment_.environment);
            if (assignment_.rests_after.count() != 0)
                source.when_idle(assignment_.rests_after, [&] {
                    request_machine.rest();
                    give_memory_back();
                });
            while (request_machine.serve_one()) {
            }
        });
        ::shutdown(machine.channel.get(), SHUT_RDWR); // tells the daemon that the machine is gone
        machine.ended = true;
    }

    ChannelConnections::Ports ports() const {
        ChannelConnections::Ports ports;
        for (const ListenerState& listener : restored_.image()->listeners) {
            // The port is at the same place in both (sockaddr_in, sockaddr_in6).
            if (listener.family != AF_UNIX && listener.address.size() >= sizeof(sockaddr_in))
                ports.emplace(ntohs(reinterpret_cast<const sockaddr_in*>(listener.address.data())->sin_port),
                              listener.id);
        }
        return ports;
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

    std::uint64_t begin_; // of what the first request waits for
    const FunctionOptions options_;
    Assignment assignment_;
    Digest base_;                              // of saved states
    UniqueFd suspend_to_;                      // the file for its state, once that is wanted
    UniqueFd checkpoint_to_, checkpoint_done_; // the same while it goes on, and where to tell
    std::vector<Frame> changed_;               // since the snapshot, as far as image() has it
    bool arrived_ = false;                     // from another daemon, and has not been asked for anything
    bool saved_ = false;                       // the same of a machine whose state was saved
    bool knows_random_state_ = true;           // image() has it set; otherwise saver_ may have found it
    std::unique_ptr<StorageClient> storage_;   // null: it has none
    Restored restored_;
    WorkerStats stats_;
    std::once_flag arena_told_;
    std::atomic<bool> first_{true};
    std::atomic<int> code_{0};
    std::list<Thread> machines_;
    std::unique_ptr<KeptMachine> kept_; // null: machines that are reset
    std::optional<StateSaver> saver_;   // of a machine that may be saved
};

} // namespace

int run_function(FunctionOptions options) {
    // An arena for each thread would keep 100 KiB, of which malloc_trim(3) gives nothing back.
    ::mallopt(M_ARENA_MAX, 1);
    jail::Jail jail(options.jail, jail::in_own_namespaces() ? jail::Namespaces::spawned : jail::Namespaces::hosts,
                    std::move(options.hosts_network));
    Restored::Ahead ahead;
    std::exception_ptr failed;
    try {
        ahead.setup = begin_restored();
        if (ahead.setup->probing.valid())
            ahead.setup->probing.wait(); // there must be no threads when the jail is entered
        (void)can_scan_pages();          // opens this process's page map while it still can
        if (options.ahead_bytes != 0)
            ahead.memory = ImageMemory::prepare(options.ahead_bytes);
    } catch (const std::exception&) { // reported later, for the function that is then to be served
        failed = std::current_exception();
    }
    jail.prepare(system_files()); // last: what comes before needs the host's /proc
    const auto plan = receive_plan(options.control.get());
    if (!plan)
        return 0;
    jail.enter(*plan);
    options.machine.hidden = plan->hidden;
    options.machine.shared_network = jail.shares_network();
    auto assignment = receive_assignment(options.control.get(), jail);
    if (!assignment)
        return 0;
    if (assignment->pieces.later || assignment->pieces.files.size() > kFewPieces)
        reserve_descriptors(kDescriptorsOfManyPieces); // there are no threads yet
    StopSignal::instance();
    options.on_name(assignment->name);
    if (!ahead.setup) // the jail has no /dev/kvm to try again
        std::rethrow_exception(failed);
    return FunctionWorker(std::move(options), std::move(*assignment), std::move(ahead)).run();
}

} // namespace kvmserver
