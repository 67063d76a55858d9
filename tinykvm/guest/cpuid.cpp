// CPUID answers from a cache. CPUID exits the machine on every kind of host, and programs ask for the same few leaves
// again and again, often when an invocation first uses a library. A machine's answers never change.
#include "tinykvm/guest/calls.hpp"

namespace gk {
namespace {

struct Answer {
    u32 function, index, eax, ebx, ecx, edx;
};
constexpr u32 kAnswers = 64;
[[gnu::section(".bss.large")]] Answer answers[kAnswers];
u32 answer_count;

// Leaves that read ECX (Intel SDM vol. 2, CPUID; AMD APM vol. 3, appendix E). For the others ECX may hold anything.
bool indexed(u32 function) {
    switch (function) {
    case 5:
    case 6:
    case 9:
    case 0xa:
    case 0x15:
    case 0x16:
    case 0x19: return false;
    default: return (function >= 4 && function < 0x4000'0000) || function >= 0x8000'001d;
    }
}

Answer ask(u32 function, u32 index) {
    Answer fresh{function, index, function, 0, index, 0};
    asm volatile("cpuid" : "+a"(fresh.eax), "=b"(fresh.ebx), "+c"(fresh.ecx), "=d"(fresh.edx));
    if (answer_count < kAnswers)
        answers[answer_count++] = fresh;
    return fresh;
}

} // namespace

// Caches the leaves that libraries ask for at their first use, so that no invocation pays for them.
void init_cpuid() {
    struct Leaf {
        u32 function, index;
    };
    constexpr Leaf kCommon[] = {{0, 0},           {1, 0},           {7, 0},           {7, 1},          {0xd, 0},
                                {0xd, 1},         {0x14, 0},        {0x19, 0},        {0x1e, 1},       {0x24, 0},
                                {0x8000'0000, 0}, {0x8000'0001, 0}, {0x8000'0007, 0}, {0x8000'0008, 0}};
    u32 highest = 0, highest_extended = 0;
    for (const Leaf& leaf : kCommon) {
        if (leaf.function > (leaf.function & 0x8000'0000 ? highest_extended : highest) && (leaf.function & 0x7fff'ffff))
            continue;
        const Answer answer = ask(leaf.function, leaf.index);
        if (leaf.function == 0)
            highest = answer.eax;
        if (leaf.function == 0x8000'0000)
            highest_extended = answer.eax;
    }
}

extern "C" Regs* gk_cpuid(Regs* regs) {
    const u32 function = static_cast<u32>(regs->rax), index = indexed(function) ? static_cast<u32>(regs->rcx) : 0;
    const Answer* found = nullptr;
    for (u32 i = 0; i < answer_count && !found; ++i)
        if (answers[i].function == function && answers[i].index == index)
            found = &answers[i];
    Answer fresh;
    if (!found) {
        fresh = ask(function, index);
        found = &fresh;
    }
    regs->rax = found->eax;
    regs->rbx = found->ebx;
    regs->rcx = found->ecx;
    regs->rdx = found->edx;
    return leave(regs);
}

} // namespace gk
