// A machine: boot a program, run until the next event, make an image, clone, reset.
//
// A machine belongs to one thread at a time. What the outside world does for it (listening,
// moving bytes of connections) is behind MachineHost, so that this library knows no sockets of its own.
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tinykvm/kvm/cpuid.hpp"
#include "tinykvm/kvm/probe.hpp"
#include "tinykvm/kvm/vcpu.hpp"
#include "tinykvm/kvm/vm_pool.hpp"
#include "tinykvm/linux/handles.hpp"
#include "tinykvm/linux/policy.hpp"
#include "tinykvm/machine/clock.hpp"
#include "tinykvm/machine/connections.hpp"
#include "tinykvm/machine/entropy.hpp"
#include "tinykvm/machine/mapped_files.hpp"
#include "tinykvm/machine/page_reset.hpp"
#include "tinykvm/machine/program.hpp"
#include "tinykvm/machine/state.hpp"
#include "tinykvm/memory/address_space.hpp"
#include "tinykvm/memory/guest_ram.hpp"

namespace tinykvm {

class Machine;

// What the guest kernel asks of the world while the machine runs. Called on the machine's thread.
class MachineHost {
public:
    virtual ~MachineHost() = default;
    // bind(2) and listen(2) of the program, by the number that the guest kernel has for the socket. The address is
    // replaced by the bound one. 0 or -errno.
    virtual int bind(ListenerState& socket) = 0;
    virtual int listen(ListenerState& socket, int backlog) = 0;
    virtual void unlisten(std::uint32_t id) = 0;
    // A socket that was bound and will connect instead; none where nothing is really bound.
    virtual BoundSocket take_bound(std::uint32_t id) = 0;
    virtual void flush(Machine& machine, std::uint32_t slot) = 0; // send what tx holds, without waiting
    virtual void poll(Machine& machine) = 0;                      // deliver what has arrived, without waiting
    // One line for people: a refused call, an unknown one (verbose).
    virtual void note(const std::string& line) = 0;
    // What a call was refused for lack of: "--FLAG=VALUE would allow it".
    virtual void refused(const std::string& line) { (void)line; }
    // Asked about every 10 ms while the program computes: true ends run() with `interrupted`.
    virtual bool should_stop() = 0;
};

enum class StopKind {
    waiting,     // every thread is blocked: see wait()
    exited,      // status
    killed,      // by a signal: signal, report
    no_memory,   // over its memory limit
    broken,      // the guest did what no program may do: report
    interrupted, // MachineHost::should_stop() said so
};
struct Stop {
    StopKind kind = StopKind::waiting;
    int status = 0; // exit status, or signal
    std::string report;
};

// Verbosity and tuning that every machine of a process shares.
// What a clone's CLOCK_MONOTONIC makes of the time between its image and an invocation.
enum class GuestTime {
    pauses,   // nothing, as in a suspend: each invocation begins at the image's time, and nothing is overdue
    continues // it has passed
};

struct MachineOptions {
    bool verbose = false;
    bool trace_syscalls = false, trace_mmap = false, trace_threads = false, trace_pagetables = false;
    // A trial: the machine may read, but nothing that it writes, sends or prints leaves it.
    bool trial = false;
    // Between invocations a machine keeps its copies of the pages it wrote to; false gives them back each time.
    bool keep_working_memory = true;
    // Code of files leads around what leaves the machine (memory/code_sites.hpp).
    bool patch_code = true;
    GuestTime time = GuestTime::pauses;
};

// What machines of one kind share: KVM, the CPU they see, the policy.
struct MachineEnv {
    const kvm::Kvm* kvm = nullptr;
    kvm::HostKind kind;
    kvm::GuestCpu cpu;
    kvm::VmPool* pool = nullptr; // null: every machine makes its own VM
    const Policy* policy = nullptr;
    Limits limits;
    MachineOptions options;
};

// A quiescent machine to clone from: shared by all its clones, immutable.
struct MachineImage {
    std::shared_ptr<Image> image;
    std::shared_ptr<const AddressSpace::Regions> regions;
    std::shared_ptr<const HandleBase> handles;
    GuestPhys root;
    std::uint64_t brk_begin = 0, brk_end = 0;
    ClockTimes times;
    std::uint64_t random_at = 0;
    std::vector<LateVariable> late_env;
    std::vector<EntropyRegion> entropy; // sound by themselves: check_entropy_region()
    std::vector<ListenerState> listeners;
    std::uint32_t threads = 0;
    std::vector<FrameRun> working_set;       // frames that an invocation is known to write to
    std::uint32_t headroom = 0;              // frames that it is known to have used behind the image
    std::vector<LargePageState> large_pages; // that can be had: use_large()
    // Under shadow paging only: other frames that the first invocation uses.
    std::vector<FrameRun> hot_files;     // of files' read-only pages: shared by all clones
    std::vector<FrameRun> hot_read_only; // of other read-only pages
    std::vector<UnwrittenPage> hot_unwritten;
    // Addresses of what the first invocation uses; bit 0: that it writes to. Those aside are for the second vCPU.
    std::vector<std::uint64_t> hot_pages, hot_aside;
    bool keep_pid = false; // the program would not bear another process number
};

// Whether a program with these regions would not bear to see its process number change.
bool must_keep_pid(const AddressSpace::Regions& regions);

enum class ResetStrategy { working_set, dirty_bits };

struct ResetStats {
    std::uint64_t pages_copied = 0, pages_dropped = 0;
};

class Machine {
public:
    static std::unique_ptr<Machine> boot(const MachineEnv& env, const ProgramSpec& program, MachineHost& host);
    static std::unique_ptr<Machine> clone(const MachineEnv& env, std::shared_ptr<const MachineImage> image,
                                          MachineHost& host, ResetStrategy strategy);
    ~Machine();

    // Resumes until the next event.
    Stop run();

    // The wait that the last run() ended with, checked.
    struct Wait {
        std::uint64_t deadline_host_ns; // CLOCK_MONOTONIC of the host; ~0 for none
        bool listening;                 // somebody waits for connections
        std::uint32_t handle_count;
        std::uint32_t threads;
    };
    Wait wait() const;
    // The handles of that wait as host descriptors; set revents through handle_ready.
    struct WaitHandle {
        int fd;
        short events;
    };
    std::vector<WaitHandle> wait_handles() const;
    void handle_ready(std::uint32_t index, short revents);
    bool waits_for_own() const; // for a handle that the image has not

    Connections& connections() { return connections_; }
    HandleTable& handles() { return handles_; }
    AddressSpace& space() { return space_; }
    const std::vector<ListenerState>& listeners() const { return listeners_; }
    std::uint64_t memory_bytes() const; // frames in use beyond the image, or in all for a booted machine
    std::uint64_t exits() const { return exits_; }
    // Why it left, by host call number; page faults and the like under the numbers of Reason.
    enum Reason : std::uint32_t { kWaits = 0x2000, kFaults, kInterrupts };
    const std::map<std::uint32_t, std::uint64_t>& exit_reasons() const { return exit_reasons_; }
    static std::string reason_name(std::uint32_t reason);

    // Quiescent machine only: becomes an image. The machine must not be used afterwards. A clone's image, all of whose
    // pages must be there (no make_lazy()), is good for renumber() only, which makes it compact again.
    std::shared_ptr<MachineImage> into_image() &&;
    // Quiescent clone only, without large pages: what it has changed is changed in `memory`, its image, some of which
    // may yet have to be loaded; all of it becomes the image of a machine like this one (make_lazy() is due again). No
    // other clone may be there, and this one must not be used afterwards.
    std::shared_ptr<MachineImage> merge_into(std::shared_ptr<Image> memory) &&;
    // Of a machine that waits or was not run yet: as if it went on this much later. What is due until then is due:
    // where its monotonic clock pauses (MachineOptions::clock), that is what waits for a time of day or of
    // CLOCK_BOOTTIME.
    void skip_time(std::uint64_t ns);
    // Clone only, before its first run: from now on accessed_frames() tells which frames the program uses.
    void forget_accessed();
    struct AccessedFrames {
        std::vector<Frame> machine; // all page tables, and all of the guest kernel by address
        std::vector<Frame> program; // by address, read-only ones first
    };
    AccessedFrames accessed_frames();
    // Clone only: frames of the image that it has written to so far.
    std::vector<FrameRun> written_frames() const;
    // Clone only: whether what lies around an entropy region of its image is other than there. A generator that moves
    // leaves a trace: a page that is gone, or the header of an object that was freed.
    bool entropy_may_have_moved() const;
    const MachineImage& image() const { return *image_; } // clone only
    // Whether the vCPU may be used for another invocation: it is where a wait leaves it, or is brought there. False
    // when it stopped in an instruction that KVM cannot end: this machine cannot be reset, only dropped.
    bool settle();
    // Clone only, one that settles: puts every bit back. Before the next invocation comes prepare().
    ResetStats reset();
    // Clone only, right after reset(): the first difference from the image, "" when there is none.
    std::string compare_with_image();
    // Clone only, after reset(): what must differ between invocations (pid, random bytes, entropy regions,
    // WIPEONFORK pages).
    void prepare();

private:
    Machine(const MachineEnv& env, MachineHost& host, std::shared_ptr<const MachineImage> image);
    void load_guest_kernel();
    std::shared_ptr<MachineImage> describe(); // as an image, but for its memory
    void set_up_vcpu();
    void start_at(std::uint64_t rip);
    void refresh_identity();
    void seed_guest_kernel(class RandomStream& random);
    void find_pages();
    // Of a populated address of the guest kernel's; the pointer is good within its page.
    Frame frame_at(std::uint64_t at) const;
    std::byte* page_bytes(std::uint64_t at) const;
    template <class T>
    T* page_pointer(std::uint64_t at) const {
        return reinterpret_cast<T*>(page_bytes(at));
    }

    void copy_known_pages(const MachineImage& image, class WorkingSet* working_set);
    void close_handles();
    void touch(std::span<const std::uint64_t> pages);
    class Prefaulter;
    void tell_once(std::uint32_t what, const std::string& line);
    std::optional<Stop> on_host_call();
    std::optional<Stop> on_exception();
    std::optional<Stop> on_interrupt();
    bool at_wait_door();
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
    bool begins_ = false;         // a clone that did not run since it was made or reset
    std::uint64_t slept_ns_ = 0;  // by skip_time(), where its monotonic clock pauses
    std::uint64_t waited_at_ = 0; // when it last waited, by the host's monotonic clock
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
    bool in_door_ = true; // the vCPU is as a wait leaves it: see at_wait_door()
    std::uint64_t last_fault_ = 0;
    std::uint32_t same_faults_ = 0;
    std::vector<std::uint32_t> told_; // what tell_once() has named
};

} // namespace tinykvm
