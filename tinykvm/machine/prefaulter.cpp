// Prefaults the pages that a first invocation is known to use.
#include "tinykvm/machine/prefaulter.hpp"
#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/kvm/cpu_tables.hpp"
#include "tinykvm/machine/machine.hpp"
#include "tinykvm/machine/ticker.hpp"

namespace tinykvm {

namespace {

// Runs the guest kernel's page prefaulter. False when it stopped other than by its regular end.
bool run_prefault(kvm::Vcpu& vcpu, GuestVirt entry, std::uint64_t list, std::size_t count) {
    vcpu.regs() = kvm_regs{};
    vcpu.regs().rip = entry.value;
    vcpu.regs().rflags = kvm::kUserFlags;
    vcpu.regs().rdi = list;
    vcpu.regs().rsi = count;
    vcpu.regs_changed();
    kvm::ExitKind kind = kvm::ExitKind::interrupted;
    // A tampered snapshot may have an endless loop in its place.
    for (int ticks = 0; kind == kvm::ExitKind::interrupted && ticks < 50; ++ticks) {
        const RunningVcpu running(vcpu);
        kind = vcpu.run();
        vcpu.clear_exit_request();
    }
    return kind == kvm::ExitKind::io && vcpu.io_port() == abi::kPortWait;
}

// Addresses of the lists for the guest kernel's page prefaulter: the rx and tx buffer of connection slot 0, which are
// still empty.
constexpr std::uint64_t kTouchList = layout::kConnBuffers, kOtherTouchList = layout::kConnBuffers + abi::kRxBytes;
static_assert(abi::kRxBytes == abi::kTxBytes);

std::span<const std::uint64_t> fitting(std::span<const std::uint64_t> pages) {
    return pages.first(std::min(pages.size(), abi::kRxBytes / sizeof(pages[0])));
}

} // namespace

// Prefaults pages with this machine's first vCPU. Page faults are most of the time of a first invocation, so they are
// taken before it.
void Machine::prefault(std::span<const std::uint64_t> pages) {
    const std::span list = fitting(pages);
    if (list.empty() || !space_.write(GuestVirt(kTouchList), std::as_bytes(list)))
        return;
    if (!run_prefault(vcpu_, GuestVirt(kernel_.touch_entry), kTouchList, list.size())) {
        at_wait_exit_ = false;
        if (!settle())
            throw UserError(ExitCode::bad_snapshot, "snapshot: its guest kernel stops where none does; build it again");
    }
}

Machine::Prefaulter::Prefaulter(const MachineImage& image, bool second_vcpu) : image_(image) {
    constexpr std::size_t kWorth = 64;
    if (!second_vcpu || image.hot_second_vcpu.size() < kWorth)
        return;
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
        // No thread is available: the first vCPU touches all pages.
    }
}

Machine::Prefaulter::~Prefaulter() {
    if (!thread_.joinable())
        return;
    set(given_up);
    thread_.join();
}

void Machine::Prefaulter::set(Stage stage) {
    stage_ = stage;
    stage_.notify_one();
}

// The second vCPU uses the same shadow pages as the first.
void Machine::Prefaulter::run() {
    stage_.wait(idle);
    if (stage_ == given_up)
        return;
    try {
        kvm::PreparedVm& vm = *machine_->kvm_;
        kvm::Vcpu& second = vm.second.emplace(*machine_->env_->kvm, vm.vm, 1);
        second.set_cpuid(machine_->env_->cpu.table);
        stage_.wait(begun);
        if (stage_ == given_up)
            return;
        special_.apic_base = second.get_special().apic_base;
        special_.idt.limit = 0; // an exception ends the run, because the exception stack is the first vCPU's
        second.set_special(special_);
        run_prefault(second, GuestVirt(machine_->kernel_.touch_entry), kOtherTouchList, second_vcpu_pages_);
        shared_ = true;
    } catch (const std::exception&) {
        // Prefaulting is only an optimisation.
    }
}

void Machine::Prefaulter::begin(Machine& machine) {
    machine_ = &machine;
    if (thread_.joinable())
        set(begun);
}

// Touches the pages of both lists, each with its vCPU. False if there is no second one.
bool Machine::Prefaulter::share(std::span<const std::uint64_t> pages) {
    if (!thread_.joinable() || !machine_->space_.write(GuestVirt(kOtherTouchList), std::as_bytes(pages)))
        return false;
    second_vcpu_pages_ = pages.size();
    special_ = machine_->vcpu_.special(); // copied now, because it changes while the first vCPU runs
    set(ready);
    {
        const auto join = [](std::thread* thread) { thread->join(); };
        const std::unique_ptr<std::thread, decltype(join)> joined(&thread_, join); // joins even if prefault() throws
        machine_->prefault(image_.hot_pages);
    }
    return shared_;
}

void Machine::Prefaulter::prefault() {
    if (share(fitting(image_.hot_second_vcpu)))
        return;
    machine_->prefault(image_.hot_pages);
    machine_->prefault(image_.hot_second_vcpu);
}

} // namespace tinykvm
