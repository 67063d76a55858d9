// CPUID from memory. It leaves the machine on every kind of host; programs ask for the same few leaves again and again, often at
// the first use of a library in an invocation, and the answers are the machine's for good.
#include "tinykvm/guest/calls.hpp"

namespace gk {
namespace {

struct Answer { u32 function, index, eax, ebx, ecx, edx; };
constexpr u32 kAnswers = 64;
Answer answers[kAnswers];
u32 answer_count;

// Leaves that read ECX (Intel SDM vol. 2, CPUID; AMD APM vol. 3, appendix E). Of the others it may hold anything.
bool indexed(u32 function) {
    switch (function) {
    case 5: case 6: case 9: case 0xa: case 0x15: case 0x16: case 0x19: return false;
    default: return (function >= 4 && function < 0x4000'0000) || function >= 0x8000'001d;
    }
}

} // namespace

extern "C" Regs* gk_cpuid(Regs* regs) {
    const u32 function = static_cast<u32>(regs->rax), index = indexed(function) ? static_cast<u32>(regs->rcx) : 0;
    const Answer* found = nullptr;
    for (u32 i = 0; i < answer_count && !found; ++i)
        if (answers[i].function == function && answers[i].index == index)
            found = &answers[i];
    Answer fresh{function, index, function, 0, index, 0};
    if (!found) {
        asm volatile("cpuid" : "+a"(fresh.eax), "=b"(fresh.ebx), "+c"(fresh.ecx), "=d"(fresh.edx));
        if (answer_count < kAnswers)
            answers[answer_count++] = fresh;
        found = &fresh;
    }
    regs->rax = found->eax;
    regs->rbx = found->ebx;
    regs->rcx = found->ecx;
    regs->rdx = found->edx;
    return leave(regs);
}

} // namespace gk
