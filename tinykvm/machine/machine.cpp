#include "tinykvm/machine/machine.hpp"

#include <elf.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstring>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/random_stream.hpp"
#include "tinykvm/guest/embed.hpp"
#include "tinykvm/kvm/cpu_tables.hpp"
#include "tinykvm/machine/dirty_bits.hpp"
#include "tinykvm/machine/prefaulter.hpp"
#include "tinykvm/machine/privileged.hpp"
#include "tinykvm/machine/working_set.hpp"

namespace tinykvm {
namespace {

std::uint32_t trace_bits(const MachineOptions& options) {
    return (options.trace_syscalls ? abi::kTraceAll : 0u) | (options.trace_threads ? abi::kTraceThreads : 0u);
}

std::uint64_t memory_limit(const MachineEnv& env, const MachineImage* image) {
    if (!image)
        return env.limits.memory & ~(kPageSize - 1);
    const std::uint64_t bytes = image->image->bytes().size();
    return bytes + page_up(memory_beside_image(env.limits, bytes));
}

std::uint32_t leaf1_edx(const kvm::GuestCpu& cpu) {
    for (std::uint32_t i = 0; i < cpu.table.nent; ++i)
        if (cpu.table.entries[i].function == 1)
            return cpu.table.entries[i].edx;
    return 0;
}

// With -v the guest kernel asks the host about missing paths there, so that the host logs which permission would show
// them.
std::uint32_t own_folders(const MachineEnv& env) {
    const std::uint32_t folders = env.policy->own_folders();
    return folders != 0 && env.options.verbose ? folders | abi::kOwnFoldersShowHost : folders;
}

} // namespace

// A process number that no recent machine of this process has had. Programs treat a changed pid as a fork and reseed
// their generators. Fits pid_t and is never 1.
std::uint32_t Machine::fresh_pid() {
    static std::atomic<std::uint32_t> next = [] {
        std::uint32_t seed = 0;
        (void)!::getrandom(&seed, sizeof(seed), 0);
        return seed % 1'000'000 + 2;
    }();
    const std::uint32_t pid = next.fetch_add(1, std::memory_order_relaxed);
    return 2 + pid % 4'000'000;
}

// CPython before 3.12 treats a changed pid as a fork and forgets its running event loop (Modules/_asynciomodule.c,
// get_running_loop). asyncio programs, whose image is made inside that loop, would fail. They keep their pid, unless
// the place of the loop's pid is known (src/unique): an entropy region then holds the new one.
bool must_keep_pid(const AddressSpace::Regions& regions) {
    bool before_3_12 = false, asyncio = false;
    for (const auto& [begin, region] : regions) {
        const std::size_t at = region.name.rfind("python3.");
        before_3_12 |= at != std::string::npos && std::atoi(region.name.c_str() + at + 8) < 12;
        asyncio |= region.name.find("/_asyncio.") != std::string::npos;
    }
    return before_3_12 && asyncio;
}

Machine::Machine(const MachineEnv& env, MachineHost& host, std::shared_ptr<const MachineImage> image)
    : env_(&env), host_(&host), kvm_(env.pool ? env.pool->take(*env.kvm) : std::make_unique<kvm::PreparedVm>(*env.kvm)),
      vm_(kvm_->vm), vcpu_(kvm_->vcpu),
      ram_(image ? GuestRam::clone(vm_, image->image, memory_limit(env, image.get()), env.options.arena)
                 : GuestRam::boot(vm_, memory_limit(env, nullptr))),
      space_(image ? AddressSpace(ram_, image->root, image->regions, image->brk_begin, image->brk_end,
                                  env.limits.address_space)
                   : AddressSpace(ram_, env.limits.address_space)),
      handles_(image ? HandleTable(image->handles, env.limits.open_files)
                     : HandleTable(*env.policy, env.limits.open_files)),
      mapped_files_(handles_.limit()), clock_(vcpu_.tsc_khz()), image_(std::move(image)),
      connections_(space_, nullptr, nullptr) {
    vcpu_.set_cpuid(env.cpu.table);
    serve_memory_files();
    if (env.options.trial)
        space_.keep_files_as_they_are();
}

Machine::~Machine() = default;

void Machine::load_guest_kernel() {
    // The file is made by our build and trusted.
    const auto bytes = guest_kernel_image();
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    for (unsigned i = 0; i < header.e_phnum; ++i) {
        Elf64_Phdr s;
        std::memcpy(&s, bytes.data() + header.e_phoff + i * sizeof(s), sizeof(s));
        if (s.p_type != PT_LOAD)
            continue;
        const auto content = bytes.subspan(s.p_offset, s.p_filesz);
        if (s.p_vaddr == layout::kKernelImage) {
            std::memcpy(&kernel_, content.data(), sizeof(kernel_));
            if (kernel_.magic != abi::kKernelMagic || kernel_.version != abi::kVersion)
                throw HostError(EINVAL, "guest kernel image");
        }
        const bool supervisor = s.p_vaddr >= kernel_.supervisor_begin && s.p_vaddr < kernel_.supervisor_end;
        const std::uint32_t prot = (s.p_flags & PF_R ? std::uint32_t{PROT_READ} : 0u) |
                                   (s.p_flags & PF_W ? std::uint32_t{PROT_WRITE} : 0u) |
                                   (s.p_flags & PF_X ? std::uint32_t{PROT_EXEC} : 0u);
        space_.place(GuestVirt(s.p_vaddr), s.p_memsz, prot, supervisor ? kRegionSupervisor : 0u, "[guest kernel]");
        space_.fill(GuestVirt(s.p_vaddr), content);
        space_.populate(GuestVirt(s.p_vaddr), page_up(s.p_memsz));
    }
    const auto place = [&](std::uint64_t at, std::uint64_t size, std::uint32_t prot, std::uint32_t flags,
                           const char* name) {
        space_.place(GuestVirt(at), size, prot, flags, name);
        space_.populate(GuestVirt(at), page_up(size));
    };
    constexpr std::uint32_t rw = PROT_READ | PROT_WRITE;
    const std::vector<std::byte> tables = cpu_tables(kernel_, env_->kind.pvm_entry);
    place(layout::kCpuTables, tables.size(), rw, kRegionSupervisor, "[cpu tables]");
    space_.fill(GuestVirt(layout::kCpuTables), tables);
    place(layout::kShared, sizeof(abi::Shared), rw, 0, "[shared]");
    place(layout::kTimePage, sizeof(abi::TimePage), PROT_READ, 0, "[time]");
    place(layout::kConnTable, sizeof(abi::Conn) * abi::kMaxConns, rw, 0, "[connections]");
    constexpr std::uint64_t pair = abi::kRxBytes + abi::kTxBytes;
    space_.place(GuestVirt(layout::kConnBuffers), pair * abi::kMaxConns, rw, 0, "[connection buffers]");
    // The slots that request machines use, for their client and for a neighbour.
    space_.populate(GuestVirt(layout::kConnBuffers), pair * (env_->neighbours ? 2 : 1));
    space_.place(GuestVirt(layout::kKernelHeap), layout::kKernelHeapBytes, rw, 0, "[kernel heap]");
    space_.place(GuestVirt(layout::kFileArea), layout::kFileAreaBytes, rw, 0, "[own files]");
}

Frame Machine::frame_at(std::uint64_t at) const { return pte::frame(space_.tables().get(GuestVirt(page_down(at)))); }

std::byte* Machine::page_bytes(std::uint64_t at) const {
    const std::uint64_t entry = space_.tables().get(GuestVirt(page_down(at)));
    if (!pte::mapped(entry)) // only in a snapshot that was tampered with
        throw UserError(ExitCode::bad_snapshot, "snapshot: a page of the guest kernel is missing; build it again");
    return ram_.host(frame_address(pte::frame(entry))) + (at & (kPageSize - 1));
}

void Machine::find_pages() {
    shared_ = page_pointer<abi::Shared>(layout::kShared);
    time_ = page_pointer<abi::TimePage>(layout::kTimePage);
    conns_ = page_pointer<abi::Conn>(layout::kConnTable);
    for (std::uint64_t page = kPageSize; page < sizeof(abi::Conn) * abi::kMaxConns; page += kPageSize)
        if (reinterpret_cast<std::byte*>(conns_) + page != page_pointer<std::byte>(layout::kConnTable + page))
            throw UserError(ExitCode::bad_snapshot, "snapshot: its connection table is in pieces; build it again");
    if (image_) {
        // The image contains its own guest kernel, which need not be this build's.
        std::memcpy(&kernel_, page_pointer<std::byte>(layout::kKernelImage), sizeof(kernel_));
        if (kernel_.magic != abi::kKernelMagic || kernel_.version != abi::kVersion)
            throw UserError(ExitCode::bad_snapshot, "snapshot: no guest kernel where one should be; build it again");
        for (const std::uint64_t entry :
             {kernel_.syscall_entry, kernel_.hardware_entry, kernel_.preempt_entry, kernel_.fault_entry,
              kernel_.wait_resume, kernel_.user_copy_fixup, kernel_.supervisor_begin, kernel_.entry_rip,
              kernel_.stub_entry, kernel_.cpuid_entry})
            if (entry < layout::kKernelImage || entry >= layout::kKernelImage + layout::kKernelImageBytes)
                throw UserError(ExitCode::bad_snapshot,
                                "snapshot: its guest kernel has no sound entries; build it again");
    }
    connections_ = Connections(space_, shared_, conns_);
    if (env_->options.patch_code)
        space_.patch_code({kernel_.stub_entry, kernel_.cpuid_entry});
}

void Machine::set_up_vcpu() {
    const bool xsave = env_->cpu.xcr0 != 0;
    if (xsave && !vcpu_.set_xcr0(env_->cpu.xcr0) && !env_->kind.pvm_entry)
        throw_errno("KVM_SET_XCRS");
    kvm_sregs sregs = kvm::user_special_registers(GuestVirt(layout::kCpuTables), space_.tables().root(), xsave);
    sregs.apic_base = vcpu_.get_special().apic_base;
    vcpu_.set_special(sregs);
    const std::uint64_t entry = env_->kind.pvm_entry ? kernel_.syscall_entry : kernel_.hardware_entry;
    const std::array msrs{kvm::Msr{0xc0000081, kvm::kStar}, kvm::Msr{0xc0000082, entry},
                          kvm::Msr{0xc0000084, kvm::kSyscallMask}};
    vcpu_.set_msrs(msrs);
    vcpu_.set_tsc_offset_zero();
}

void Machine::start_at(std::uint64_t rip) {
    vcpu_.regs() = kvm_regs{};
    vcpu_.regs().rip = rip;
    vcpu_.regs().rdi = env_->kind.protection_keys;
    vcpu_.regs().rflags = kvm::kUserFlags;
    vcpu_.regs_changed();
}

std::unique_ptr<Machine> Machine::boot(const MachineEnv& env, const ProgramSpec& program, MachineHost& host) {
    std::unique_ptr<Machine> m(new Machine(env, host, nullptr));
    m->load_guest_kernel();
    m->find_pages();
    LoadOptions options;
    options.uid = static_cast<std::uint32_t>(::getuid());
    options.gid = static_cast<std::uint32_t>(::getgid());
    options.hwcap = leaf1_edx(env.cpu);
    options.signal_frame_bytes = 1024 + env.cpu.xsave_bytes;
    const LoadedProgram loaded = load_program(m->space_, program, options);
    m->random_at_ = loaded.random_at;
    m->late_env_ = loaded.late_env;
    abi::Shared& s = *m->shared_;
    s.boot_entry = loaded.entry;
    s.boot_stack = loaded.stack;
    s.entry_mode = env.kind.pvm_entry ? abi::kEntryPvm : abi::kEntryHardware;
    s.xsave_bytes = (env.cpu.xsave_bytes + 63) & ~63u;
    s.xsave_mask = env.cpu.xcr0;
    s.pid = fresh_pid();
    s.uid = options.uid;
    s.gid = options.gid;
    s.max_files = env.limits.open_files;
    s.cpus = 1;
    s.memory_bytes = env.limits.memory;
    s.own_folders = own_folders(env);
    s.neighbours = env.neighbours != nullptr;
    s.own_room = env.limits.memory / 2; // like the default size of a tmpfs
    s.trace = trace_bits(env.options);
    s.function_call.enabled = env.options.callable;
    RandomStream random;
    random.fill(std::as_writable_bytes(std::span(s.seed)));
    m->set_up_vcpu();
    m->start_at(m->kernel_.boot_entry);
    return m;
}

std::unique_ptr<Machine> Machine::clone(const MachineEnv& env, const std::shared_ptr<const MachineImage>& image,
                                        MachineHost& host, ResetStrategy strategy) {
    std::unique_ptr<Machine> m; // ends after the prefaulter, which uses it
    Prefaulter prefaulter(*image, env.second_vcpu && env.pool && env.pool->has_ready());
    m.reset(new Machine(env, host, image));
    prefaulter.begin(*m);
    WorkingSet* working_set = nullptr;
    DirtyBits* dirty_bits = nullptr;
    if (strategy == ResetStrategy::dirty_bits)
        m->page_reset_.reset(dirty_bits = new DirtyBits(m->ram_, m->space_, *image->image, m->vcpu_));
    else
        m->page_reset_.reset(working_set = new WorkingSet(m->ram_, m->space_, *image->image));
    m->copy_known_pages(*image, working_set);
    m->find_pages();
    m->listeners_ = image->listeners;
    m->random_at_ = image->random_at;
    m->late_env_ = image->late_env;
    m->clock_.continue_from(image->times);
    m->begins_ = true;
    m->entropy_ = EntropyRegions(image->entropy, m->ram_, m->space_.tables());
    for (const Frame frame : m->entropy_.frames())
        if (working_set)
            working_set->never_clean(frame);
        else
            dirty_bits->add_host_page(frame);
    if (dirty_bits) {
        dirty_bits->add_host_page(m->frame_at(layout::kShared));
        dirty_bits->add_host_page(m->frame_at(layout::kTimePage));
        for (std::uint64_t at = 0; at < sizeof(abi::Conn) * abi::kMaxConns; at += kPageSize)
            dirty_bits->add_host_page(m->frame_at(layout::kConnTable + at));
    }
    m->set_up_vcpu();
    prefaulter.prefault();
    m->start_at(m->kernel_.wait_resume);
    m->refresh_identity();
    return m;
}

// Populates the pages that a clone is known to need, all at once, which is cheaper than a fault for each. Pages that it
// is known to write to are copied first, before anything is read. Copying a page that is mapped already would unmap it,
// which notifies every VM of the process.
void Machine::copy_known_pages(const MachineImage& image, WorkingSet* working_set) {
    const auto populate = [&](const FrameRun& run, int advice) {
        (void)!::madvise(ram_.host(frame_address(run.first)), std::uint64_t{run.count} * kPageSize, advice);
    };
    const auto make_private = [&](const FrameRun& run) {
        // A private copy of a page that is not loaded yet would stay empty.
        for (Frame f = run.first; f < run.first + run.count; ++f)
            if (!image.image->loaded(f))
                return;
        populate(run, kMadvPopulateWrite);
    };
    for (const FrameRun& run : image.working_set)
        make_private(run);
    ram_.prepare_headroom(image.headroom);
    if (!env_->kind.pvm_entry)
        return;
    // Under shadow paging each page costs a fault of about 23 us. KVM maps a page's neighbours along with it only where
    // the host's mapping is writable, like that of a private copy.
    for (const FrameRun& run : image.hot_files) {
        ram_.share(run.first, run.count);
        populate(run, kMadvPopulateRead);
    }
    for (const FrameRun& run : image.hot_read_only) {
        make_private(run);
        if (working_set)
            working_set->add_clean_copies(run);
    }
    std::vector<FrameRun> unwritten;
    for (const UnwrittenPage& page : image.hot_unwritten)
        append_frame(unwritten, page.frame);
    for (const FrameRun& run : unwritten)
        make_private(run);
    if (working_set)
        working_set->add_clean_copies(image.hot_unwritten);
}

void Machine::refresh_identity() {
    if (!image_->keep_pid)
        shared_->pid = fresh_pid();
    shared_->generation = shared_->generation + 1;
    shared_->own_folders = own_folders(*env_);
    shared_->neighbours = env_->neighbours != nullptr;
    shared_->own_room = memory_beside_image(env_->limits, image_->image->bytes().size()) / 2;
    shared_->trace = trace_bits(env_->options);
    shared_->preempt = 0;
    RandomStream random;
    constexpr std::size_t kAtRandom = 16;
    std::array<std::byte, kAtRandom + sizeof(abi::Shared::seed)> fresh; // of one block
    random.fill(fresh);
    space_.write(GuestVirt(random_at_), std::span(fresh).first<kAtRandom>());
    std::memcpy(shared_->seed, fresh.data() + kAtRandom, sizeof(abi::Shared::seed));
    entropy_.fill(random, shared_->pid);
    if (space_.has_wipe_on_fork())
        space_.wipe_on_fork();
}

bool Machine::entropy_may_have_moved() const { return entropy_.surroundings_changed(ram_, space_.tables()); }

bool Machine::entropy_may_have_moved(std::span<const EntropyRegion> regions) const {
    return tinykvm::entropy_may_have_moved(regions, *image_, ram_, space_.tables());
}

Machine::Wait Machine::wait() const {
    const volatile abi::Wait& w = shared_->wait;
    Wait out{};
    const std::uint64_t deadline = w.deadline_ns;
    out.deadline_host_ns = deadline == ~std::uint64_t{0} ? deadline : clock_.to_host_mono(deadline);
    out.listening = w.listeners != 0;
    out.runnable = w.runnable != 0;
    out.handle_count = std::min(std::uint32_t{w.handle_count}, abi::kMaxWaitHandles);
    out.threads = w.threads;
    return out;
}

std::vector<Machine::WaitHandle> Machine::wait_handles() const {
    const volatile abi::Wait& w = shared_->wait;
    const std::uint32_t count = std::min(std::uint32_t{w.handle_count}, abi::kMaxWaitHandles);
    std::vector<WaitHandle> out;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::int32_t handle = w.handles[i].handle;
        const std::int16_t events = w.handles[i].events;
        out.push_back({handles_.fd(handle), events});
    }
    return out;
}

bool Machine::waits_for_own() const {
    const volatile abi::Wait& w = shared_->wait;
    const std::uint32_t count = std::min(std::uint32_t{w.handle_count}, abi::kMaxWaitHandles);
    for (std::uint32_t i = 0; i < count; ++i)
        if (handles_.is_unfinished(w.handles[i].handle))
            return true;
    return false;
}

void Machine::handle_ready(std::uint32_t index, short revents) {
    if (index < abi::kMaxWaitHandles)
        shared_->wait.handles[index].revents = revents;
}

void Machine::skip_time(std::uint64_t ns) {
    if (image_ && env_->options.time == GuestTime::pauses) {
        slept_ns_ += ns;
        return;
    }
    ClockTimes times = clock_.at(host_mono_ns());
    times.mono += ns;
    times.boot += ns;
    clock_.continue_from(times);
}

std::uint64_t Machine::memory_bytes() const { return ram_.bytes_in_use(); }

SelfNumbers Machine::self_numbers() const {
    SelfNumbers numbers{};
    std::memcpy(&numbers.state, &shared_->self, sizeof(numbers.state));
    numbers.parent = shared_->parent;
    const std::uint64_t image = std::uint64_t{ram_.image_frames()} * kPageSize;
    numbers.mapped_bytes = space_.address_space_bytes();
    numbers.resident_bytes = image + ram_.bytes_in_use();
    numbers.peak_bytes = std::max(numbers.resident_bytes, std::uint64_t{ram_.high()} * kPageSize);
    return numbers;
}

std::shared_ptr<MachineImage> Machine::describe() {
    settle_mapped_files();
    connections_.lose_all();
    space_.populate_files();
    space_.populate_nearby();
    auto out = std::make_shared<MachineImage>();
    auto regions = std::make_shared<AddressSpace::Regions>(space_.regions());
    for (auto& [begin, region] : *regions) {
        region.patches = nullptr;
        if ((region.flags & kRegionShared) && region.file)
            continue;          // shows the file's own pages, or frozen ones
        region.file = nullptr; // the content is in the image now
        region.file_offset = 0;
    }
    out->regions = std::move(regions);
    out->handles = handles_.freeze();
    out->root = space_.tables().root();
    out->brk_begin = space_.brk_begin();
    out->brk_end = space_.brk_end();
    out->times = clock_.at(waited_at_);
    out->random_at = random_at_;
    out->late_env = late_env_;
    out->keep_pid = image_ ? image_->keep_pid : must_keep_pid(*out->regions);
    out->listeners = listeners_;
    out->threads = wait().threads;
    if (image_) {
        out->working_set = image_->working_set;
        out->headroom = image_->headroom;
    }
    return out;
}

std::shared_ptr<MachineImage> Machine::into_image() && {
    auto out = describe();
    out->image = std::move(ram_).into_image();
    return out;
}

} // namespace tinykvm
