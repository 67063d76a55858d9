#include "src/runner/request_machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "src/event_loop/overrun.hpp"
#include "src/setup/machine_env.hpp"
#include "src/setup/report.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

bool uses_dirty_bits(const Setup& setup, const Options& options) {
    if (options.reset == "dirty-bits" && !setup.env.kind.dirty_bits)
        throw UserError(ExitCode::usage, "--reset=dirty-bits: this KVM host does not set dirty bits anew "
                                         "(shadow paging); use working-set");
    return options.reset == "dirty-bits" || (options.reset != "working-set" && setup.env.kind.dirty_bits);
}

RequestMachine::RequestMachine(const Setup& setup, const Options& options, std::shared_ptr<const MachineImage> image,
                               ConnectionSource& source, WorkerStats& stats, const Stopper& stop,
                               Neighbours* neighbours)
    : setup_(setup), options_(options), image_(std::move(image)), source_(source), stats_(stats), env_(setup.env),
      loop_(own_listeners(setup), note_line, stop) {
    // Ceilings may have cut down what a request may take.
    const std::uint64_t most = memory_beside_image(env_.limits, image_->image->bytes().size());
    env_.options.arena = {.bytes = std::min(env_.limits.request_arena, most) & ~(kHugePageBytes - 1),
                          .takes_reserved = options.huge_pages.reserved};
    if (neighbours)
        env_.neighbours = neighbours;
}

void RequestMachine::prepare() {
    const ResetStrategy strategy =
        uses_dirty_bits(setup_, options_) ? ResetStrategy::dirty_bits : ResetStrategy::working_set;
    machine_ = Machine::clone(env_, image_, loop_, strategy);
    machine_->handles().take_given_only();
    machine_->reset_after_connection();
}

bool RequestMachine::serve_one() {
    IncomingConnection client;
    if (!source_.next(client))
        return false;
    Served served;
    const std::uint64_t begin = host_mono_ns();
    if (!machine_)
        prepare();
    const std::uint64_t exits = machine_->exits();
    report_outcome_ = std::move(client.report_outcome);
    const bool datagram = client.handle >= 0;
    if (datagram)
        loop_.give(*machine_, client.handle, std::move(client.datagram));
    else if (!loop_.attach(*machine_, std::move(client)))
        throw HostError(ENOSPC, "connection slot of a clean machine");
    EventLoop::Until until;
    until.one_connection = !datagram;
    until.one_datagram = datagram;
    until.accepting = true; // on sockets that this invocation opens to listen
    until.limit_ns = static_cast<std::uint64_t>(setup_.env.limits.request_seconds * 1e9);
    until.total_ns = static_cast<std::uint64_t>(setup_.env.limits.request_total_seconds * 1e9);
    until.cpu_ns = static_cast<std::uint64_t>(setup_.env.limits.request_cpu_seconds * 1e9);
    const LoopEnd end = loop_.run(*machine_, until);
    finish(end);
    served.exec_ns = host_mono_ns() - begin;
    served.exits = machine_->exits() - exits;
    stats_.connections.fetch_add(1, std::memory_order_relaxed);
    stats_.exits.fetch_add(served.exits, std::memory_order_relaxed);
    if (end == LoopEnd::requested)
        return false;
    if ((end == LoopEnd::stopped && loop_.stop().kind == StopKind::broken) || !machine_->settle())
        replace();
    else
        clean(served);
    source_.served(served);
    return true;
}

void RequestMachine::rest() {
    if (!machine_)
        return;
    add_reasons();
    machine_.reset();
}

void RequestMachine::add_reasons() {
    if (!machine_)
        return;
    const std::lock_guard lock(stats_.mutex);
    for (const auto& [reason, count] : machine_->exit_reasons())
        stats_.reasons[reason] += count;
}

void RequestMachine::report(request::Outcome outcome) {
    if (report_outcome_)
        report_outcome_(outcome);
    report_outcome_ = nullptr;
}

// Reports the outcome before the connection closes.
void RequestMachine::finish(LoopEnd end) {
    const std::string name = program_name(setup_.program);
    if (end == LoopEnd::stopped) {
        const Stop& stop = loop_.stop();
        stats_.failures.fetch_add(1, std::memory_order_relaxed);
        if (stop.kind == StopKind::exited)
            note_line(
                fmt::format("{}: exited with status {} during a request; the connection is closed, the machine reset",
                            name, stop.status));
        else if (stop.kind == StopKind::no_memory)
            note_line(fmt::format("{}: a request took more than {}; the connection is closed, the machine reset", name,
                                  memory_beside_image(setup_.env.limits, image_->image->bytes().size()) <
                                          setup_.env.limits.request_memory
                                      ? "--max-main-memory leaves beside the image"
                                      : "--max-request-memory"));
        else
            report_stop(name, stop);
        report(stop.kind == StopKind::no_memory ? request::Outcome::out_of_memory : request::Outcome::program_failed);
        loop_.drop_connections(false);
    } else if (end == LoopEnd::timeout) {
        stats_.failures.fetch_add(1, std::memory_order_relaxed);
        note_line(fmt::format("{}: a request {}; the connection is closed, the machine reset", name,
                              overrun_text(loop_.overrun(), setup_.env.limits)));
        report(outcome_of(loop_.overrun()));
        loop_.drop_connections(true);
    } else if (end == LoopEnd::requested) {
        report(request::Outcome::stopped);
        loop_.drop_connections(false);
    }
    report_outcome_ = nullptr;
    loop_.drop_connections(false); // to neighbours: their programs see that this client has gone
}

// A vCPU whose last exit was not one of the guest kernel's own ports is not reused: KVM may still have to complete an
// instruction (IN waits for its value) and would do so with the registers of the next invocation.
void RequestMachine::replace() {
    loop_.close_own_listeners();
    add_reasons();
    machine_.reset();
    prepare();
}

void RequestMachine::clean(Served& served) {
    const std::uint64_t begin = host_mono_ns();
    loop_.close_own_listeners();
    const ResetStats done = machine_->reset();
    served.reset_ns = host_mono_ns() - begin;
    served.pages_copied = done.pages_copied;
    served.pages_dropped = done.pages_dropped;
    stats_.reset_ns.fetch_add(served.reset_ns, std::memory_order_relaxed);
    stats_.pages_copied.fetch_add(done.pages_copied, std::memory_order_relaxed);
    stats_.pages_dropped.fetch_add(done.pages_dropped, std::memory_order_relaxed);
    if (options_.check_reset) {
        const std::string difference = machine_->compare_with_image();
        if (!difference.empty()) {
            note_line("reset differs: " + difference);
            difference_ = true;
        }
    }
    machine_->prepare();
}

} // namespace kvmserver
