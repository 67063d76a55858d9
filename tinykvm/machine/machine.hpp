// A machine: boot a program, run until the next event, make an image, clone, reset.
//
// A machine belongs to one thread at a time. A MachineHost listens and moves the bytes of connections, so that this
// library needs no listening sockets.
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tinykvm/kvm/cpuid.hpp"
#include "tinykvm/kvm/probe.hpp"
#include "tinykvm/kvm/vcpu.hpp"
#include "tinykvm/kvm/vm_pool.hpp"
#include "tinykvm/linux/handles.hpp"
#include "tinykvm/linux/output_sink.hpp"
#include "tinykvm/linux/policy.hpp"
#include "tinykvm/machine/clock.hpp"
#include "tinykvm/machine/connections.hpp"
#include "tinykvm/machine/debugger.hpp"
#include "tinykvm/machine/entropy.hpp"
#include "tinykvm/machine/mapped_files.hpp"
#include "tinykvm/machine/neighbours.hpp"
#include "tinykvm/machine/page_reset.hpp"
#include "tinykvm/machine/program.hpp"
#include "tinykvm/machine/single_process.hpp"
#include "tinykvm/machine/state.hpp"
#include "tinykvm/memory/address_space.hpp"
#include "tinykvm/memory/guest_ram.hpp"

namespace tinykvm {

class Machine;

// Services of the outside world for a machine while it runs. Called on the machine's thread.
class MachineHost {
public:
    virtual ~MachineHost() = default;
    // bind(2) and listen(2) of the program. `socket.id` is the guest kernel's number for the socket; `socket.address`
    // is replaced by the bound address. Returns 0 or -errno.
    virtual int bind(ListenerState& socket) = 0;
    virtual int listen(ListenerState& socket, int backlog) = 0;
    virtual void unlisten(std::uint32_t id) = 0;
    // Hands over a bound socket that will connect instead of listen. Empty when the host has bound nothing.
    virtual BoundSocket take_bound(std::uint32_t id) = 0;
    virtual void flush(Machine& machine, std::uint32_t slot) = 0; // send what tx holds, without waiting
    virtual void poll(Machine& machine) = 0;                      // deliver what has arrived, without waiting
    // The program has connected to a neighbour: `stream` is the connection in this slot.
    virtual void connected(Machine& machine, std::uint32_t slot, UniqueFd stream) {
        (void)machine, (void)slot, (void)stream;
    }
    // A line for the log: a refused call, or (verbose) an unknown one.
    virtual void note(const std::string& line) = 0;
    // A call was refused for lack of a permission. `line` names it: "--FLAG=VALUE would allow it".
    virtual void refused(const std::string& line) { (void)line; }
    virtual void refused_execve() {} // no permission allows it
    // The program calls a function of the embedder. Nothing: there is none of this number.
    virtual std::optional<std::int64_t> call_host(Machine& machine, std::uint64_t number,
                                                  std::span<const std::uint64_t, 5> arguments) {
        (void)machine, (void)number, (void)arguments;
        return std::nullopt;
    }
    // Gets the program's output; null: the process's stdout and stderr do.
    virtual const OutputSink* output() const { return nullptr; }
    // Asked about every 10 ms while the program computes: true ends run() with `interrupted`.
    virtual bool should_stop() = 0;
};

enum class StopKind {
    waiting,     // every thread is blocked: see wait()
    exited,      // see status
    killed,      // by a signal: see status and report
    no_memory,   // over its memory limit
    broken,      // the guest did what no sound guest does: see report
    interrupted, // MachineHost::should_stop() returned true
};
inline constexpr const char* kEndedByDebugger = "ended by the debugger"; // Stop::report
struct Stop {
    StopKind kind = StopKind::waiting;
    int status = 0; // exit status or signal number
    std::string report;
};

// How a clone's CLOCK_MONOTONIC treats the time between the making of its image and an invocation.
enum class GuestTime {
    pauses,   // it stands still, as in a suspend: each invocation begins at the image's time, and no timer is overdue
    continues // it goes on
};

// Verbosity and tuning that every machine of a process shares.
struct MachineOptions {
    bool verbose = false;
    bool trace_syscalls = false, trace_mmap = false, trace_threads = false, trace_pagetables = false;
    // A trial run: the machine may read, but nothing that it writes, sends or prints has an effect outside.
    bool trial = false;
    // Other machines of this process connect to what it listens on, and nobody else: that needs no permission.
    bool listens_near = false;
    // Whether a machine keeps its copies of written pages between invocations. false: gives them back each time.
    bool keep_working_memory = true;
    // Patches code of files so that its system calls need not leave the machine (memory/code_sites.hpp).
    bool patch_code = true;
    // The program may say that it is ready for calls of its functions (include/tinykvm/guest.h). A boot's only.
    bool callable = false;
    RequestArena arena; // of clones
    GuestTime time = GuestTime::pauses;
    ForkPolicy fork = ForkPolicy::known;
};

// What machines of one kind share: KVM, the CPU they see, the policy. Must outlive them.
struct MachineEnv {
    const kvm::Kvm* kvm = nullptr;
    kvm::HostKind kind;
    kvm::GuestCpu cpu;
    kvm::VmPool* pool = nullptr; // null: every machine makes its own VM
    // Whether a clone in a VM of the pool may make a second vCPU, which prefaults half of the pages while it starts.
    bool second_vcpu = false;
    const Policy* policy = nullptr;
    Limits limits;
    MachineOptions options;
    Neighbours* neighbours = nullptr; // null: none
    // Called when a program is about to end by a signal, with si_code and si_addr, for core files. The machine can be
    // looked at (DebugTarget), but not run.
    std::function<void(Machine&, int signal, int code, std::uint64_t address)> on_killed{};
};

// A quiescent machine to clone from. Immutable and shared by all its clones.
struct MachineImage {
    std::shared_ptr<Image> image;
    std::shared_ptr<const AddressSpace::Regions> regions;
    std::shared_ptr<const HandleBase> handles;
    GuestPhys root;
    std::uint64_t brk_begin = 0, brk_end = 0;
    ClockTimes times;
    std::uint64_t random_at = 0;
    std::vector<LateVariable> late_env;
    std::vector<EntropyRegion> entropy; // validated by check_entropy_regions()
    std::vector<ListenerState> listeners;
    std::uint32_t threads = 0;
    std::vector<FrameRun> working_set;       // frames that an invocation is known to write to
    std::uint32_t headroom = 0;              // number of frames after the image that an invocation is known to use
    std::vector<LargePageState> large_pages; // for use_large()
    // Under shadow paging only: other frames that the first invocation uses.
    std::vector<FrameRun> hot_files;          // read-only pages of files: all clones share them
    std::vector<FrameRun> hot_read_only;      // other read-only pages
    std::vector<UnwrittenPage> hot_unwritten; // writable pages that it only reads
    // Addresses that the first invocation uses, with bit 0 set if it writes there. The second vCPU prefaults
    // hot_second_vcpu.
    std::vector<std::uint64_t> hot_pages, hot_second_vcpu;
    bool keep_pid = false; // the program would fail if its process number changed
};

// Whether a program with these regions would fail if its process number changed.
bool must_keep_pid(const AddressSpace::Regions& regions);

enum class ResetStrategy { working_set, dirty_bits };

struct ResetStats {
    std::uint64_t pages_copied = 0, pages_dropped = 0;
};

// `env` and `host` must outlive the machine. Failures of the host throw HostError.
class Machine {
public:
    // A new machine with the program loaded, ready to run().
    static std::unique_ptr<Machine> boot(const MachineEnv& env, const ProgramSpec& program, MachineHost& host);
    // A machine that continues from an image.
    static std::unique_ptr<Machine> clone(const MachineEnv& env, const std::shared_ptr<const MachineImage>& image,
                                          MachineHost& host, ResetStrategy strategy);
    ~Machine();

    // Resumes until the next event.
    Stop run();

    // The wait that ended the last run(), validated.
    struct Wait {
        std::uint64_t deadline_host_ns; // CLOCK_MONOTONIC of the host; ~0 for none
        bool listening;                 // a thread waits for connections
        bool runnable;                  // a thread could go on: only while callable()
        std::uint32_t handle_count;
        std::uint32_t threads;
    };
    Wait wait() const;
    // The handles of that wait as host descriptors. Report what is ready by handle_ready(); `index` is into this list.
    struct WaitHandle {
        int fd;
        short events;
    };
    std::vector<WaitHandle> wait_handles() const;
    void handle_ready(std::uint32_t index, short revents);
    bool waits_for_own() const; // for a handle that is not in the image (HandleTable::is_unfinished)

    // It will be reset once its connection is closed, so the program may leave the connection to a child (ForkPolicy).
    void reset_after_connection() { reset_after_connection_ = true; }
    bool child_serves() const { return child_serves_; } // such a child has been followed, in this connection or before

    Connections& connections() { return connections_; }
    HandleTable& handles() { return handles_; }
    AddressSpace& space() { return space_; }
    const std::vector<ListenerState>& listeners() const { return listeners_; }
    std::uint64_t memory_bytes() const; // in use beyond the image; all memory in use for a booted machine
    std::uint64_t exits() const { return exits_; }
    // Number of exits by reason: a host call number or a value of Reason.
    enum Reason : std::uint32_t { kWaits = 0x2000, kFaults, kInterrupts };
    const std::map<std::uint32_t, std::uint64_t>& exit_reasons() const { return exit_reasons_; }
    static std::string reason_name(std::uint32_t reason);

    // --- functions of the program, if a thread of it says that it is ready (include/tinykvm/guest.h) -----------------
    // A booted machine that has not run yet: as if its program said so where the instruction at `at` would be executed
    // for the first time. False when there is no memory of the program.
    bool ready_at(GuestVirt at);
    // For a machine that waits or has not run yet: whether a thread is ready for a call.
    bool callable() const;
    // Of a callable machine: memory of the ready thread's stack below this address is free.
    GuestVirt free_stack() const;
    // For a callable machine: the next run() calls this function of the program. It has returned once the machine waits
    // and is callable() again.
    struct FunctionCall {
        GuestVirt function, stack_top; // the function's stack begins at stack_top, at most free_stack()
        std::array<std::uint64_t, 6> integers{};
        std::array<double, 8> reals{};
    };
    void call(const FunctionCall& call);
    // RAX and the lower half of XMM0, of the function that has returned.
    struct Returned {
        std::uint64_t integer, real;
    };
    Returned returned() const;

    // Booted machine only, not a clone: moves its memory into huge pages (GuestRam::use_huge_pages).
    std::uint64_t use_huge_pages(std::uint64_t most) { return ram_.use_huge_pages(most); }
    std::uint64_t memory_end() const { return frame_address(ram_.high()).value; } // of what it has had at some time
    // What its arena is made of; nullopt: it has none (MachineOptions::arena).
    std::optional<ArenaPages> arena_pages() const {
        return ram_.arena_frames() != 0 ? std::optional(ram_.arena_pages()) : std::nullopt;
    }

    // Quiescent machine only: turns it into an image. The machine must not be used afterwards. A clone may be turned
    // into an image only if all pages of its own image are loaded (no make_lazy()). The result has holes: pass it to
    // renumber(), which makes it compact.
    std::shared_ptr<MachineImage> into_image() &&;
    // Quiescent clone only: writes its changes into `memory`, its image, and returns the result as the image of a
    // machine like this one, without large pages. Parts of `memory` need not be loaded yet. make_lazy() must be called
    // again. The image must have no other clones, and this machine must not be used afterwards.
    // Appends to `replaced`, if it is given, the frames of the result whose bytes are others than before. Sets `unused`
    // to those that nothing maps, ascending: their bytes mean nothing.
    std::shared_ptr<MachineImage> merge_into(std::shared_ptr<Image> memory, std::vector<Frame>* replaced = nullptr,
                                             std::vector<Frame>* unused = nullptr) &&;
    // For a machine that waits or has not run yet: continues as if this much later, so that waits expire. If its
    // monotonic clock pauses (MachineOptions::time), only waits for a time of day or of CLOCK_BOOTTIME do.
    void skip_time(std::uint64_t ns);
    // The machine's time of day is this much ahead of the host's.
    void set_time_of_day_ahead(std::uint64_t ns) { clock_.set_real_ahead(ns); }
    // Clone only, before its first run: from now on accessed_frames() tells which frames the program uses.
    void forget_accessed();
    struct AccessedFrames {
        std::vector<Frame> machine; // all page tables, then all of the guest kernel by address
        std::vector<Frame> program; // by address, read-only ones first
    };
    AccessedFrames accessed_frames();
    // Clone only: frames of the image that it has written to so far.
    std::vector<FrameRun> written_frames() const;
    // Clone only: whether the memory around an entropy region differs from the image. A generator that moves leaves
    // such a trace: a page that is gone, or the changed header of a freed object.
    bool entropy_may_have_moved() const;
    // The same for regions that were found in its image since the machine was made of it.
    bool entropy_may_have_moved(std::span<const EntropyRegion> regions) const;
    const MachineImage& image() const { return *image_; } // clone only
    // Brings the vCPU to the state in which a wait leaves it, so that it can serve another invocation. False when it
    // stopped in an instruction that KVM cannot complete: this machine cannot be reset, only destroyed.
    bool settle();
    // Clone only: restores the state of the image, every bit of it. Call prepare() before the next invocation. Throws
    // HostError when settle() fails.
    ResetStats reset();
    // Clone only, right after reset(): describes the first difference from the image, "" when there is none.
    std::string compare_with_image();
    // Clone only, after reset(): renews what must differ between invocations (pid, random bytes, entropy regions,
    // WIPEONFORK pages).
    void prepare();

    // From now on the debugger is asked. Call this before the first run(), for a new machine with
    // MachineOptions::patch_code off. False when there is no memory to restore the code of a clone. The debugger must
    // outlive the machine.
    bool attach(Debugger& debugger);
    Debugger* debugger() const { return debugger_; }
    // With a debugger: stops as soon as a thread is about to return to the program.
    void stop_soon();
    // With a debugger, for a machine that waits: stops it there. Returns how it ended, if the debugger ended it.
    std::optional<Stop> stop_waiting();

private:
    friend class DebugTarget;
    Machine(const MachineEnv& env, MachineHost& host, std::shared_ptr<const MachineImage> image);
    void load_guest_kernel();
    std::shared_ptr<MachineImage> describe(); // an image of it, without the memory
    void set_up_vcpu();
    void start_at(std::uint64_t rip);
    void refresh_identity();
    void find_pages();
    // For populated addresses of the guest kernel. The pointer is valid up to the end of its page.
    Frame frame_at(std::uint64_t at) const;
    std::byte* page_bytes(std::uint64_t at) const;
    template <class T>
    T* page_pointer(std::uint64_t at) const {
        return reinterpret_cast<T*>(page_bytes(at));
    }

    void copy_known_pages(const MachineImage& image, class WorkingSet* working_set);
    void close_handles();
    void prefault(std::span<const std::uint64_t> pages);
    class Prefaulter;
    void log_once(std::uint32_t what, const std::string& line);
    ForkMoment fork_moment(std::uint32_t nr) const;
    std::int64_t process_call(const abi::HostCall& call);
    static std::uint32_t fresh_pid();
    std::optional<Stop> on_host_call();
    bool reached_ready();
    std::optional<Stop> host_function(const abi::HostCall& call);
    std::optional<Stop> on_exception();
    std::optional<Stop> on_interrupt();
    void set_preempt(std::uint32_t clear, std::uint32_t set);
    std::optional<Stop> debug_stop(const debug::StopReason& reason);
    std::optional<Stop> on_debug_call(const abi::HostCall& call, std::int64_t& result);
    void enter_debug_stop(debug::StopReason::Kind kind, std::uint64_t rip);
    bool debug_exception(abi::ExceptionFrame& frame);
    bool debug_tick(bool in_program);
    void tick_in_kernel();
    bool at_wait_exit();
    std::int64_t memory_call(const abi::HostCall& call, bool& handled);
    std::int64_t map_call(const abi::HostCall& call);
    void serve_memory_files();
    void settle_mapped_files();
    void after_file_call(const abi::HostCall& call, std::int64_t result);
    SelfNumbers self_numbers() const;
    std::int64_t tell_own_path(const std::string& path);
    bool trial_call(const abi::HostCall& call, std::int64_t& result);
    std::int64_t listen_call(const abi::HostCall& call);
    std::int64_t listen_at_path(ListenerState& socket, bool bind, int backlog);
    void note_listener(ListenerState socket);
    std::int64_t take_bound(std::uint32_t id);
    std::int64_t connect_near(const abi::HostCall& call);
    Stop killed(int signal, std::uint64_t address, std::int32_t code);
    Stop broken(const std::string& what);
    std::string describe_address(std::uint64_t address) const;
    UniqueFd open_for_report(const Region& region) const;
    void trace_call(const abi::HostCall& call);

    const MachineEnv* env_;
    MachineHost* host_;
    std::unique_ptr<kvm::PreparedVm> kvm_;
    kvm::Vm& vm_;
    kvm::Vcpu& vcpu_;
    GuestRam ram_;
    AddressSpace space_;
    HandleTable handles_;
    MappedFiles mapped_files_;
    GuestClock clock_;
    bool reset_after_connection_ = false, child_serves_ = false;
    bool begins_ = false;         // a clone that has not run since it was made or reset
    std::uint64_t slept_ns_ = 0;  // sum of skip_time(), if the monotonic clock pauses
    std::uint64_t waited_at_ = 0; // host CLOCK_MONOTONIC of the last wait
    std::shared_ptr<const MachineImage> image_;
    std::unique_ptr<PageReset> page_reset_; // clone only
    abi::KernelHeader kernel_{};
    abi::Shared* shared_ = nullptr;
    abi::TimePage* time_ = nullptr;
    abi::Conn* conns_ = nullptr;
    Connections connections_;
    std::vector<ListenerState> listeners_;
    std::uint64_t random_at_ = 0;
    std::vector<LateVariable> late_env_;
    EntropyRegions entropy_;
    std::uint64_t exits_ = 0;
    std::map<std::uint32_t, std::uint64_t> exit_reasons_;
    bool at_wait_exit_ = true; // the vCPU is in the state in which a wait leaves it: see at_wait_exit()
    std::uint64_t last_fault_ = 0;
    std::uint32_t same_faults_ = 0;
    std::vector<std::uint32_t> logged_; // what log_once() has reported
    Debugger* debugger_ = nullptr;
    debug::StopReason stop_reason_;         // of the next kDebugStop
    std::optional<std::uint64_t> ready_at_; // of ready_at(): a breakpoint is there
    std::byte ready_code_{};                // what it stands for
    bool debug_signal_ = false;             // the debugger wants the program to get the signal that it dies of
    struct {
        bool active = false, others_wait = false;
        bool arriving = false; // the guest kernel is about to return to the thread that steps
        bool begun = false;    // it has done so once
    } step_;
};

} // namespace tinykvm
