// From options to what machines need: KVM, the policy, the program.
#pragma once
#include <future>
#include <memory>
#include <mutex>
#include <string>

#include "src/runner/event_loop.hpp"
#include "src/runner/options.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

// Diagnostics to stderr, one whole line at a time.
void note_line(const std::string& line);

struct Setup {
    tinykvm::kvm::Kvm kvm;
    std::unique_ptr<tinykvm::Policy> policy;
    tinykvm::MachineEnv env;
    tinykvm::ProgramSpec program;
    std::unique_ptr<Listeners> listeners;
    tinykvm::kvm::VmPool pool;
    std::future<void> probing; // of the host's kind, which takes milliseconds; ends before the rest
};

// For a program (run, snapshot).
std::unique_ptr<Setup> set_up_program(const Options& options);
// What is the same for every snapshot: KVM, what kind it is (found out by another thread), and a VM.
std::unique_ptr<Setup> begin_restored();
// For a restored machine: the snapshot's program, permissions and limits, with what the user gave instead.
std::unique_ptr<Setup> set_up_restored(const Options& options, const tinykvm::MachineState& state,
                                       std::unique_ptr<Setup> begun);

// Boots until the program waits for its first connection. Null when it ended instead, with the exit code of
// the command (what happened has been told).
struct Booted {
    std::unique_ptr<EventLoop> loop;
    std::unique_ptr<tinykvm::Machine> machine;
    int exit_code = 0;
    LoopEnd end = LoopEnd::quiescent; // how the boot ended
    double seconds = 0;
    std::uint64_t warm_ns = 0; // CPU time of the cheapest request of the warm-up; 0: there was none
    std::string warm_reply;    // the last one to warm_up(), or its beginning
    unsigned warm_status = 0;  // of the last reply to warm_up(); 0: that was not HTTP
};
// `must_listen`: ending before that is an error and boot time is limited.
Booted boot_program(const Setup& setup, const Options& options, bool must_listen);

// What a program was refused while it ran, and what would have allowed it.
void tell_refusals(const std::string& name, const EventLoop& loop);

// The exit code for a machine that stopped, having told why.
int report_stop(const std::string& name, const tinykvm::Stop& stop);

std::string program_name(const tinykvm::ProgramSpec& program);

} // namespace kvmserver
