// The ways out of a machine that odd_exits.c offers.
#include "odd_exits.h"

#include <errno.h>
#include <immintrin.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// tinykvm/abi/guest_kernel.hpp, tinykvm/abi/layout.hpp
enum { kPort = 0x5a0, kWaitPort = 0x5a1, kExceptionPort = 0xe0, kOther = 0x80 };
#define KERNEL 0x7ff000000000l     // KernelHeader
#define CPU_TABLES 0x7ff004000000l // GDT, IDT, TSS, exception stack
#define SHARED 0x7ff004100000l
static uint64_t kernel_entry(int nth) { return ((volatile uint64_t *)KERNEL)[2 + nth]; } // after magic and version
enum { kBoot, kSyscall, kHardwareEntry, kPreempt, kFault, kWaitResume, kStubs = 9, kTextBegin = 11, kTextEnd, kSupervisor };

// One piece of assembler with the registers that string instructions and ports go by. What stands behind it would be
// run by the next invocation if its machine were still to end the instruction.
#define PORT(name, port, code)                                                                                        \
    static void name(void) {                                                                                          \
        __asm__ volatile(code "\n\tjmp odd_told" ::"d"((long)(port)), "D"(odd_page), "S"(odd_page), "c"(64l), "a"(1l) \
                         : "memory");                                                                                 \
    }
// The same where the program may go on, as by the guest kernel's own ports: that is no business of the next.
#define DOOR(name, port, code)                                                                               \
    static void name(void) {                                                                                 \
        __asm__ volatile(code "\n\tud2" ::"d"((long)(port)), "D"(odd_page), "S"(odd_page), "c"(64l), "a"(1l) \
                         : "memory");                                                                        \
    }
// The same for what no port has to do with.
#define CODE(name, code)                                                                               \
    static void name(void) {                                                                           \
        __asm__ volatile(code ::"a"(odd_page), "d"(0l), "c"(0l), "b"(0l), "S"(odd_page), "D"(odd_page) \
                         : "memory", "cc");                                                            \
    }

PORT(in, kPort, "inl %%dx, %%eax")
PORT(inb, kPort, "inb %%dx, %%al")
PORT(inw, kPort, "inw %%dx, %%ax")
PORT(in_wait, kWaitPort, "inl %%dx, %%eax")
PORT(insb, kPort, "insb")
PORT(insw, kPort, "insw")
PORT(insl, kPort, "insl")
PORT(rep_insb, kPort, "rep insb")
PORT(rep_insw, kPort, "rep insw")
PORT(rep_insl, kPort, "rep insl")
PORT(rep_insl_down, kPort, "std\n\trep insl")
PORT(in_other, kOther, "inl %%dx, %%eax")
PORT(in_exception, kExceptionPort, "inl $0xe0, %%eax")
PORT(out_other, kOther, "outl %%eax, %%dx")
PORT(out_exception, kExceptionPort, "outl %%eax, $0xe0")
PORT(out_beside, 0x5a3, "outb %%al, %%dx")
DOOR(outb_call, kPort, "outb %%al, %%dx")
DOOR(outb_wait, kWaitPort, "outb %%al, %%dx")
PORT(outsb, kOther, "outsb")
PORT(outsw, kOther, "outsw")
PORT(outsl, kOther, "outsl")
PORT(rep_outsb, kOther, "rep outsb")
PORT(rep_outsl, kOther, "rep outsl")
DOOR(outsb_call, kPort, "outsb")
DOOR(rep_outsb_call, kPort, "rep outsb")
DOOR(rep_outsl_call, kPort, "rep outsl")
DOOR(outsl_wait, kWaitPort, "outsl")
DOOR(rep_outsl_wait, kWaitPort, "rep outsl")
DOOR(out_traced, kWaitPort, "pushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\toutl %%eax, %%dx")
DOOR(ss_out, kWaitPort, "mov %%ss, %%bx\n\tmov %%bx, %%ss\n\toutl %%eax, %%dx")
DOOR(ss_out_traced, kWaitPort,
     "mov %%ss, %%bx\n\tpushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\tmov %%bx, %%ss\n\toutl %%eax, %%dx")

// A wait, and a call of the host, made by the program itself.
static void shared_rubbish(int byte) { memset((void *)SHARED, byte, 4096); }
static void out_wait(void) {
    for (;;) __asm__ volatile("outl %%eax, %%dx" ::"d"(kWaitPort), "a"(0) : "memory");
}
static void out_wait_rubbish(void) {
    shared_rubbish(0xff);
    out_wait();
}
static void out_call_rubbish(void) {
    for (int byte = 0; byte < 256; ++byte) {
        shared_rubbish(byte);
        __asm__ volatile("outl %%eax, %%dx" ::"d"(kPort), "a"(0) : "memory");
    }
}
static void call_host(unsigned number, uint64_t first) { // HostCall
    *(volatile uint32_t *)SHARED = number;
    ((volatile uint64_t *)SHARED)[1] = first;
    __asm__ volatile("outl %%eax, %%dx" ::"d"(kPort), "a"(0) : "memory");
}
static void call_exit(void) { call_host(0x1800, 7); }
static void call_killed(void) { call_host(0x1801, 11); }
static void call_panic(void) { call_host(0x180a, (uint64_t)odd_page); }
// From where the guest kernel itself goes out, with registers of which it knows nothing.
static void jump_wait(void) {
    __asm__ volatile("jmp *%0" ::"r"(kernel_entry(kWaitResume) - 1), "d"(kWaitPort), "a"(0));
}
static void jump_wait_data(void) { // and DS, ES, FS and GS that a program has not
    __asm__ volatile("mov %w3, %%ds\n\tmov %w3, %%es\n\tmov %w3, %%fs\n\tmov %w3, %%gs\n\tjmp *%0" ::"r"(
                         kernel_entry(kWaitResume) - 1),
                     "d"(kWaitPort), "a"(0), "r"(0x2b));
}
static void jump_wait_flags(void) { // AC, NT, DF, IOPL
    __asm__ volatile("pushfq\n\torq $0x47400, (%%rsp)\n\tpopfq\n\tjmp *%0" ::"r"(kernel_entry(kWaitResume) - 1),
                     "d"(kWaitPort), "a"(0));
}
static void jump_wait_traced(void) {
    __asm__ volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\tjmp *%0" ::"r"(kernel_entry(kWaitResume) - 1),
                     "d"(kWaitPort), "a"(0));
}
static void jump_wait_in(void) {
    __asm__ volatile("mov $0x80, %%edx\n\tjmp *%0" ::"r"(kernel_entry(kWaitResume) - 1), "a"(0));
}

// ---- other modes ----------------------------------------------------------------------------------------------------

struct Far {
    uint32_t at;
    uint16_t selector;
} __attribute__((packed));
static void far_code(const char *code, const char *end) {
    char *low = mmap((void *)0x10000000, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memcpy(low, code, (size_t)(end - code));
}
static void far_jump(uint16_t selector, const char *code, const char *end) {
    far_code(code, end);
    volatile struct Far to = {0x10000000, selector};
    __asm__ volatile("mov $0x10001000, %%rsp\n\tljmpl *(%0)" ::"r"(&to) : "memory");
}
static void iret_to(uint64_t rip, uint64_t cs, uint64_t flags, uint64_t rsp, uint64_t ss) {
    __asm__ volatile("push %4\n\tpush %3\n\tpush %2\n\tpush %1\n\tpush %0\n\tiretq" ::"r"(rip), "r"(cs), "r"(flags),
                     "r"(rsp), "r"(ss)
                     : "memory");
}
// Code of 32 bits at 0x10000000; its stack is in the page behind, which grows down from 0x10001000.
#define COMPAT(name, selector, code)                                                                            \
    __asm__(".pushsection .rodata\n" #name "_32:\n.code32\n" code "\n.code64\n" #name "_32_end:\n.popsection"); \
    extern const char name##_32[], name##_32_end[];                                                             \
    static void name(void) { far_jump(selector, name##_32, name##_32_end); }
COMPAT(compat_out, 0x23, "mov $0x5a1, %edx\n out %eax, %dx\n ud2")
COMPAT(compat_out_call, 0x23, "mov $0x5a0, %edx\n out %eax, %dx\n ud2")
COMPAT(compat_in, 0x23, "mov $0x5a0, %edx\n in %dx, %eax\n ud2")
COMPAT(compat_rep_ins, 0x23, "mov $0x5a0, %edx\n mov $0x10000800, %edi\n mov $16, %ecx\n rep insl\n ud2")
COMPAT(compat_ud2, 0x23, "ud2")
COMPAT(compat_spin, 0x23, "1: jmp 1b")
COMPAT(compat_syscall, 0x23, "mov $1, %eax\n syscall\n ud2")
COMPAT(compat_sysenter, 0x23, "mov $1, %eax\n sysenter\n ud2")
COMPAT(compat_int80, 0x23, "mov $1, %eax\n mov $3, %ebx\n int $0x80\n ud2")
COMPAT(compat_into, 0x23, "mov $0x7fffffff, %eax\n add $1, %eax\n into\n ud2")
COMPAT(compat_int3, 0x23, "int3\n ud2")
COMPAT(compat_segments, 0x23,
       "mov $0x2b, %eax\n mov %eax, %ds\n mov %eax, %es\n mov %eax, %gs\n mov $0x5a1, %edx\n out %eax, %dx\n ud2")
COMPAT(compat_null, 0x23, "xor %eax, %eax\n mov %eax, %ds\n mov 0, %eax\n ud2")
static void far_return(void) {
    far_code(compat_ud2_32, compat_ud2_32_end);
    __asm__ volatile("mov $0x10001000, %%rsp\n\tpushq $0x23\n\tpushq $0x10000000\n\tlretq" ::: "memory");
}
static void iret_compat(void) {
    far_code(compat_ud2_32, compat_ud2_32_end);
    iret_to(0x10000000, 0x23, 0x202, 0x10001000, 0x2b);
}
COMPAT(far_kernel, 0x08, "ud2")
COMPAT(far_data, 0x2b, "ud2")
COMPAT(far_tss, 0x43, "ud2")
COMPAT(far_beyond, 0xfff8, "ud2")
COMPAT(far_nothing, 0x00, "ud2")

static void after_iret(void) {
    for (;;) __asm__ volatile("outl %%eax, %%dx" ::"d"(kWaitPort), "a"(0) : "memory");
}
static uint64_t here(void) { return (uint64_t)(uintptr_t)after_iret; }
static uint64_t stack(void) { return (uint64_t)(uintptr_t)(odd_page + 2048); }
static void iret_kernel(void) { iret_to(here(), 0x08, 0x202, stack(), 0x10); }
static void iret_no_data(void) { iret_to(here(), 0x33, 0x202, stack(), 0); }
static void iret_far_rip(void) { iret_to(0x8000000000000000u, 0x33, 0x202, stack(), 0x2b); }
static void iret_flags(void) {
    iret_to(here(), 0x33, 0x47ed7 | 0x1b0000, stack(), 0x2b);
} // NT, AC, VM, VIF, VIP, ID, IOPL, TF off
static void iret_traced(void) { iret_to(here(), 0x33, 0x302, stack(), 0x2b); }
static void iret_nested(void) { __asm__ volatile("pushfq\n\torq $0x4000, (%rsp)\n\tpopfq\n\tiretq"); }

// ---- exceptions
// ------------------------------------------------------------------------------------------------------

CODE(int3, "int3")
CODE(icebp, ".byte 0xf1")
CODE(int_2, "int $2")
CODE(int_8, "int $8")
CODE(int_14, "int $14")
CODE(int_20, "int $0x20")
CODE(int_80, "mov $1, %%eax\n\tint $0x80")
CODE(int_ff, "int $0xff")
CODE(traced, "pushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\tnop\n\tnop")
CODE(traced_syscall, "pushfq\n\torq $0x100, (%%rsp)\n\tmov $39, %%eax\n\tpopfq\n\tsyscall\n\tnop")
CODE(traced_ss, "mov %%ss, %%cx\n\tpushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\tmov %%cx, %%ss\n\tsyscall")
CODE(alignment, "pushfq\n\torq $0x40000, (%%rsp)\n\tpopfq\n\tmov 1(%%rax), %%rcx")
CODE(divide, "xor %%ecx, %%ecx\n\tdiv %%ecx")
CODE(x87, "fninit\n\tpushq $0\n\tfldcw (%%rsp)\n\tfld1\n\tfldz\n\tfdivrp\n\tfwait")
CODE(x87_pending, "fninit\n\tpushq $0\n\tfldcw (%%rsp)\n\tfld1\n\tfldz\n\tfdivrp\n\tud2") // left for the next
CODE(sse, "pushq $0\n\tldmxcsr (%%rsp)\n\txorps %%xmm0, %%xmm0\n\tmovaps %%xmm0, %%xmm1\n\tdivps %%xmm1, %%xmm0")
CODE(mxcsr_odd, "pushq $0xffff\n\tldmxcsr (%%rsp)\n\tud2")
CODE(mxcsr_bad, "pushq $-1\n\tldmxcsr (%%rsp)")
CODE(no_stack, "movabs $0x8000000000000000, %%rsp\n\tpush %%rax")
CODE(no_stack_int3, "movabs $0x8000000000000000, %%rsp\n\tint3")
CODE(no_stack_syscall, "movabs $0x8000000000000000, %%rsp\n\tmov $1, %%eax\n\tsyscall\n\tud2")
CODE(zero_stack_ud2, "xor %%esp, %%esp\n\tud2")
CODE(kernel_stack, "movabs $0x7ff004003000, %%rsp\n\tpush %%rax")
CODE(no_rip, "movabs $0x8000000000000000, %%rax\n\tjmp *%%rax")
CODE(long_code, ".byte 0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x90")
CODE(lock_code, ".byte 0xf0, 0x90")
CODE(ud0, ".byte 0x0f, 0xff, 0xc0")
CODE(ud2, "ud2")
CODE(fs_base_far, "movabs $0x8000000000000000, %%rax\n\twrfsbase %%rax")
CODE(fs_base_odd, "wrgsbase %%rax\n\twrfsbase %%rax\n\tud2")

// What only a kernel may do.
CODE(hlt, "hlt")
CODE(cli, "cli\n\tud2")
CODE(sti, "sti\n\tud2")
CODE(rdmsr, "mov $0xc0000082, %%ecx\n\trdmsr")
CODE(wrmsr, "mov $0xc0000082, %%ecx\n\twrmsr")
CODE(rdpmc, "rdpmc")
CODE(debug_write, "mov %%rax, %%dr0")
CODE(debug_control, "mov $0x403, %%eax\n\tmov %%rax, %%dr7")
CODE(debug_read, "mov %%dr6, %%rax\n\tud2")
CODE(control_write, "xor %%eax, %%eax\n\tmov %%rax, %%cr0")
CODE(control_tables, "mov %%rax, %%cr3")
CODE(control_read, "mov %%cr4, %%rax\n\tud2")
CODE(priority, "mov %%rax, %%cr8")
CODE(lgdt, "lgdt (%%rax)")
CODE(lidt, "lidt (%%rax)")
CODE(lldt, "lldt %%dx")
CODE(ltr, "mov $0x40, %%edx\n\tltr %%dx")
CODE(lmsw, "lmsw %%dx")
CODE(clts, "clts")
CODE(swapgs, "swapgs\n\tud2")
CODE(invlpg, "invlpg (%%rax)")
CODE(wbinvd, "wbinvd")
CODE(sysret, "sysretq")
CODE(sysenter, "sysenter\n\tud2")
CODE(sysexit, "sysexitl")
CODE(xsetbv, "mov $1, %%eax\n\txsetbv")
CODE(xrstor_bad, "orb $0xff, 527(%%rax)\n\tmov %%rax, %%rbx\n\tand $-64, %%rbx\n\tmov $-1, %%eax\n\tmov $-1, "
                 "%%edx\n\txrstor (%%rbx)")
CODE(vmcall, "vmcall\n\tud2")
CODE(vmmcall, "vmmcall\n\tud2")
CODE(vmrun, "vmrun")
CODE(vmlaunch, "vmlaunch")
CODE(rsm, "rsm")
CODE(monitor, "monitor\n\tud2")
CODE(mwait, "mwait\n\tud2")
CODE(wrpkru, "mov $0xfffffffc, %%eax\n\t.byte 0x0f, 0x01, 0xef\n\tud2") // where the CPU has it
CODE(ldtilecfg, "movb $1, (%%rax)\n\t.byte 0xc4, 0xe2, 0x78, 0x49, 0x00\n\tud2")
CODE(store_tables, "sgdt (%%rax)\n\tsidt (%%rax)\n\tsldt %%dx\n\tstr %%dx\n\tsmsw %%dx\n\tud2")

// ---- the guest kernel, memory, and ways that programs know ----------------------------------------------------------

static void jump(uint64_t to) {
    __asm__ volatile("jmp *%0" ::"r"(to), "D"(odd_page), "S"(1l), "a"(1l), "c"(here()) : "memory");
}
static void jump_supervisor(void) { jump(kernel_entry(kSupervisor)); }
static void jump_stub(void) { jump(kernel_entry(kStubs)); }
static void jump_syscall(void) { jump(kernel_entry(kSyscall)); }
static void jump_preempt(void) { jump(kernel_entry(kPreempt)); }
static void jump_fault(void) { jump(kernel_entry(kFault)); }
static void jump_boot(void) { jump(kernel_entry(kBoot)); }
static void jump_resume(void) { jump(kernel_entry(kWaitResume)); }
static void jump_tables(void) { jump(CPU_TABLES); }
static void jump_data(void) { jump((uint64_t)(uintptr_t)odd_page); }
static void jump_null(void) { jump(0); }
static void write_text(void) { *(volatile char *)kernel_entry(kTextBegin) = 1; }
static void write_supervisor(void) { *(volatile char *)kernel_entry(kSupervisor) = 1; }
static void write_tables(void) { *(volatile char *)CPU_TABLES = 1; }
static void read_tables(void) { (void)*(volatile char *)CPU_TABLES; }
static void write_data(void) { // all of the guest kernel's own, then a call
    const uint64_t begin = kernel_entry(15), end = kernel_entry(16);
    memset((void *)begin, 0xff, end - begin);
    syscall(SYS_getpid);
}
static void write_data_zero(void) {
    const uint64_t begin = kernel_entry(15), end = kernel_entry(16);
    memset((void *)begin, 0, end - begin);
    syscall(SYS_getpid);
}
static void lost_page(void) { // a page of a file that is shorter now
    const int fd = (int)syscall(SYS_memfd_create, "odd", 0);
    if (ftruncate(fd, 8192) < 0) return;
    volatile char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    at[4096] = 1;
    if (ftruncate(fd, 0) < 0) return;
    at[4096] = 1;
}
static void lost_page_ins(void) { // what INS is to write to has gone
    const int fd = (int)syscall(SYS_memfd_create, "odd", 0);
    if (ftruncate(fd, 4096) < 0) return;
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    at[0] = 1;
    if (ftruncate(fd, 0) < 0) return;
    __asm__ volatile("rep insl" ::"D"(at), "d"(kPort), "c"(64l) : "memory");
}
static void own_signal(void) { raise(SIGKILL); }
static void exits(void) { _exit(3); }
static void aborts(void) { abort(); }
static void vectors(void) { // left in all registers that there are
    if (__builtin_cpu_supports("avx512f"))
        __asm__ volatile("vpternlogd $255, %%zmm0, %%zmm0, %%zmm0\n\tvmovdqa64 %%zmm0, %%zmm17\n\tvmovdqa64 %%zmm0, "
                         "%%zmm31\n\tkxnorw %%k1, %%k1, %%k3" ::
                             : "memory");
    else if (__builtin_cpu_supports("avx")) __asm__ volatile("vcmptrueps %%ymm15, %%ymm15, %%ymm15" ::: "memory");
    __asm__ volatile("fninit\n\tfldpi\n\tfldpi\n\tud2");
}
static void *volatile nothing;
static void hungry(void) { // over its memory limit
    for (;;) {
        nothing = malloc(1 << 20);
        if (nothing) memset(nothing, 1, 1 << 20);
    }
}
static void deep(void) { __asm__ volatile("1: push %%rax\n\tjmp 1b" ::: "memory"); }
static void spin(void) {
    for (;;) __asm__ volatile("pause");
}
static void spin_calls(void) {
    for (;;) call_host(0x180b, 999);
}
static void on_trap(int number) { (void)number; }
static void spin_int3(void) {
    signal(SIGTRAP, on_trap);
    for (;;) __asm__ volatile("int3");
}
static void spin_traced(void) {
    signal(SIGTRAP, on_trap);
    __asm__ volatile("pushfq\n\torq $0x100, (%rsp)\n\tpopfq\n\t1: jmp 1b");
}
static void sleeps(void) {
    for (;;) pause();
}

#define K(name) {#name, name}
// clang-format off
const struct OddKind odd_kinds[] = {
    K(in), K(inb), K(inw), K(in_wait), K(insb), K(insw), K(insl), K(rep_insb), K(rep_insw), K(rep_insl),
    K(rep_insl_down), K(in_other), K(in_exception), K(out_other), K(out_exception), K(out_beside), K(outb_call),
    K(outb_wait), K(outsb), K(outsw), K(outsl), K(rep_outsb), K(rep_outsl), K(outsb_call), K(rep_outsb_call),
    K(rep_outsl_call), K(outsl_wait), K(rep_outsl_wait), K(out_traced), K(ss_out), K(ss_out_traced), K(out_wait),
    K(out_wait_rubbish), K(out_call_rubbish), K(call_exit), K(call_killed), K(call_panic), K(jump_wait),
    K(jump_wait_data), K(jump_wait_flags), K(jump_wait_traced), K(jump_wait_in), K(compat_out), K(compat_out_call),
    K(compat_in), K(compat_rep_ins), K(compat_ud2), K(compat_spin), K(compat_syscall), K(compat_sysenter),
    K(compat_int80), K(compat_into), K(compat_int3), K(compat_segments), K(compat_null), K(far_return),
    K(iret_compat), K(far_kernel), K(far_data), K(far_tss), K(far_beyond), K(far_nothing), K(iret_kernel),
    K(iret_no_data), K(iret_far_rip), K(iret_flags), K(iret_traced), K(iret_nested), K(int3), K(icebp), K(int_2),
    K(int_8), K(int_14), K(int_20), K(int_80), K(int_ff), K(traced), K(traced_syscall), K(traced_ss), K(alignment),
    K(divide), K(x87), K(x87_pending), K(sse), K(mxcsr_odd), K(mxcsr_bad), K(no_stack), K(no_stack_int3),
    K(no_stack_syscall), K(zero_stack_ud2), K(kernel_stack), K(no_rip), K(long_code), K(lock_code), K(ud0), K(ud2),
    K(fs_base_far), K(fs_base_odd), K(hlt), K(cli), K(sti), K(rdmsr), K(wrmsr), K(rdpmc), K(debug_write),
    K(debug_control), K(debug_read), K(control_write), K(control_tables), K(control_read), K(priority), K(lgdt),
    K(lidt), K(lldt), K(ltr), K(lmsw), K(clts), K(swapgs), K(invlpg), K(wbinvd), K(sysret), K(sysenter), K(sysexit),
    K(xsetbv), K(xrstor_bad), K(vmcall), K(vmmcall), K(vmrun), K(vmlaunch), K(rsm), K(monitor), K(mwait), K(wrpkru),
    K(ldtilecfg), K(store_tables), K(jump_supervisor), K(jump_stub), K(jump_syscall), K(jump_preempt), K(jump_fault),
    K(jump_boot), K(jump_resume), K(jump_tables), K(jump_data), K(jump_null), K(write_text), K(write_supervisor),
    K(write_tables), K(read_tables), K(write_data), K(write_data_zero), K(lost_page), K(lost_page_ins),
    K(own_signal), K(exits), K(aborts), K(vectors), K(hungry), K(deep), K(spin), K(spin_calls), K(spin_int3),
    K(spin_traced), K(sleeps), {0}};
