// Has KVM map the pages that a first invocation is known to use before it runs.
#include <thread>

#include "tinykvm/kvm/cpu_tables.hpp"
#include "tinykvm/machine/machine.hpp"
#include "tinykvm/machine/ticker.hpp"
#include "tinykvm/memory/layout.hpp"

namespace tinykvm {

namespace {

// Runs the guest kernel's page toucher. False when it stopped in another way than by its end.
bool run_toucher(kvm::Vcpu& vcpu, GuestVirt entry, std::uint64_t list, std::size_t count) {
    vcpu.regs() = kvm_regs{};
    vcpu.regs().rip = entry.value;
    vcpu.regs().rflags = kvm::kUserFlags;
    vcpu.regs().rdi = list;
    vcpu.regs().rsi = count;
    vcpu.regs_changed();
    kvm::ExitKind kind = kvm::ExitKind::interrupted;
    // What a tampered snapshot has put there instead may not end.
    for (int ticks = 0; kind == kvm::ExitKind::interrupted && ticks < 20; ++ticks) {
        const RunningVcpu running(vcpu);
        kind = vcpu.run();
        vcpu.clear_exit_request();
    }
    return kind == kvm::ExitKind::io && vcpu.io_port() == abi::kPortWait;
}

// Where the lists for the guest kernel's page toucher go: where requests are received and replies are put, which hold nothing yet.
constexpr std::uint64_t kTouchList = layout::kConnBuffers, kOtherTouchList = layout::kConnBuffers + abi::kRxBytes;
static_assert(abi::kRxBytes == abi::kTxBytes);

std::span<const std::uint64_t> fitting(std::span<const std::uint64_t> pages) {
    return pages.first(std::min(pages.size(), abi::kRxBytes / sizeof(pages[0])));
}

} // namespace

// The faults of the pages that it is known to use are most of a first invocation: they are taken before it.
void Machine::touch(std::span<const std::uint64_t> pages) {
    const std::span list = fitting(pages);
    if (list.empty() || !space_.write(GuestVirt(kTouchList), std::as_bytes(list)))
        return;
    if (!run_toucher(vcpu_, GuestVirt(kernel_.touch_entry), kTouchList, list.size())) {
        vcpu_.clear_events();
        set_up_vcpu();
    }
}

// The same by the second vCPU, if there is one: it uses the same shadow pages. The thread must be joined before the
// machine is used.
std::thread Machine::touch_aside(std::span<const std::uint64_t> pages) {
    constexpr std::size_t kWorth = 128;
    const std::span list = fitting(pages);
    if (!kvm_->second || list.size() < kWorth || !space_.write(GuestVirt(kOtherTouchList), std::as_bytes(list)))
        return {};
    return std::thread([this, count = list.size(), special = vcpu_.special()]() mutable {
        try {
            kvm::Vcpu& second = *kvm_->second;
            special.apic_base = second.get_special().apic_base;
            special.idt.limit = 0; // an exception ends it: the stack for them is the first vCPU's
            second.set_special(special);
            run_toucher(second, GuestVirt(kernel_.touch_entry), kOtherTouchList, count);
        } catch (const std::exception&) {
            // It was only for speed.
        }
    });
}

} // namespace tinykvm
