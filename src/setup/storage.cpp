#include "src/setup/storage.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "src/setup/boot.hpp"
#include "src/setup/huge_pages.hpp"
#include "src/setup/report.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"
#include "tinykvm/machine/clock.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

// Connections that the program has not accepted yet. Linux refuses them at SOMAXCONN, too.
constexpr std::size_t kMaxArrived = 4096;

std::string addresses_of(const MachineImage& image) {
    std::string out;
    for (const ListenerState& listener : image.listeners)
        out += (out.empty() ? "" : ", ") + to_string(reinterpret_cast<const sockaddr*>(listener.address.data()),
                                                     static_cast<socklen_t>(listener.address.size()));
    return out;
}

// As the user named it: redis-server is a link to a program of another name.
std::string name_of(const ProgramSpec& program) {
    return program.script.empty() ? program.name.substr(program.name.rfind('/') + 1) : program_name(program);
}

} // namespace

StorageMachine::StorageMachine(const Setup& setup, const std::shared_ptr<const MachineImage>& image, std::string name,
                               StorageTotals& totals)
    : name_("storage " + std::move(name)), totals_(totals),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE)), loop_(listeners_, note_line, stop_),
      env_(setup.env) {
    if (!wake_)
        throw_errno("eventfd");
    listeners_.set_dry(true);
    listeners_.open(image->listeners);
    machine_ = Machine::clone(env_, image, loop_, ResetStrategy::working_set);
    thread_ = std::thread([this] { serve(); });
}

StorageMachine::~StorageMachine() {
    stop_.request();
    thread_.join();
}

void StorageMachine::serve() {
    EventLoop::Until until;
    until.accepting = true;
    until.arrivals = this;
    try {
        if (loop_.run(*machine_, until) == LoopEnd::stopped)
            end(loop_.stop());
    } catch (const std::exception& error) { // of the host
        note_line(fmt::format("{}: {}", name_, error.what()));
        end({StopKind::broken, 0, ""});
    }
    totals_.connections += loop_.connections_attached();
    totals_.exits += machine_->exits();
    const std::lock_guard lock(mutex_);
    ended_ = true;
    arrived_.clear();
    loop_.drop_connections(false);
}

void StorageMachine::end(const Stop& stop) {
    constexpr const char* kLost = "what it kept is lost, and the run ends";
    int code = static_cast<int>(ExitCode::failure);
    if (stop.kind == StopKind::exited) {
        note_line(fmt::format("{}: exited with status {}; {}", name_, stop.status, kLost));
        code = stop.status != 0 ? stop.status : code;
    } else {
        if (!stop.report.empty() || stop.kind != StopKind::broken)
            code = report_stop(name_, stop);
        note_line(fmt::format("{}: {}", name_, kLost));
    }
    totals_.exit_code = code;
    StopSignal::instance().request();
}

UniqueFd StorageMachine::connect(const Address& to, const Address& from) {
    const auto listener = listeners_.dry_listener_at(to.get(), to.bytes);
    if (!listener) {
        errno = ENOENT;
        return {};
    }
    const std::lock_guard lock(mutex_);
    if (ended_ || arrived_.size() >= kMaxArrived) {
        errno = ECONNREFUSED;
        return {};
    }
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        return {};
    UniqueFd ours(ends[0]), theirs(ends[1]);
    IncomingConnection arrival;
    arrival.fd = std::move(theirs);
    arrival.listener = listener->id;
    arrival.own = true;
    if (listener->family == from.storage.ss_family) {
        arrival.peer.storage = from.storage;
        arrival.peer.bytes = from.bytes;
    }
    arrived_.push_back(std::move(arrival));
    ::eventfd_write(wake_.get(), 1);
    return ours;
}

bool StorageMachine::next(IncomingConnection& out) {
    const std::lock_guard lock(mutex_);
    if (arrived_.empty())
        return false;
    out = std::move(arrived_.front());
    arrived_.pop_front();
    eventfd_t ignored;
    ::eventfd_read(wake_.get(), &ignored);
    return true;
}

Storage::Storage(const Options& options)
    : options_(options), setup_(set_up_program(options)), name_(name_of(setup_->program)) {
    setup_->listeners->set_policy(nullptr); // nothing listens on the host, not even at a path
    setup_->listeners->set_dry(true);
    setup_->env.options.listens_near = true;
    setup_->env.options.time = GuestTime::continues; // it is not one invocation
    setup_->env.limits.request_memory = setup_->env.limits.memory;
}

bool Storage::boot() {
    Booted booted = boot_program(*setup_, options_, {});
    if (!booted.machine) {
        totals_.exit_code = booted.exit_code;
        return false;
    }
    image_ = std::move(*booted.machine).into_image();
    booted.machine.reset();
    use_huge_pages(options_, *image_->image);
    first_ = std::make_unique<StorageMachine>(*setup_, image_, name_, totals_);
    fmt::print("Storage '{}' booted in {:.1f} ms, {} at {}\n", printable(name_), booted.seconds * 1000,
               options_.one_to_one ? "one for each machine" : "one for all machines", printable(addresses_of(*image_)));
    std::fflush(stdout);
    return true;
}

void Storage::print_stats() {
    first_.reset();
    note_line(
        fmt::format("storage {}: {} connections, {} exits", name_, totals_.connections.load(), totals_.exits.load()));
}

std::unique_ptr<Neighbours> Storage::own() {
    return options_.one_to_one ? std::make_unique<StorageMachine>(*setup_, image_, name_, totals_) : nullptr;
}

} // namespace kvmserver
