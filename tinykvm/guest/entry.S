/* Entries of the guest kernel and the few instructions that run at CPL 0. */

.section .header, "a"
.globl gk_header
gk_header:
    .quad 0x314b4d564b545647        /* kKernelMagic */
    .long 6                          /* abi::kVersion */
    .long gk_debug_table - gk_header
    .quad gk_boot_entry
    .quad gk_syscall_entry
    .quad gk_hardware_entry
    .quad gk_preempt_entry
    .quad gk_fault_entry
    .quad gk_wait_resume
    .quad gk_user_copy_begin
    .quad gk_user_copy_end
    .quad gk_user_copy_fixup
    .quad gk_exception_stubs
    .quad 16
    .quad gk_text_begin
    .quad gk_text_end
    .quad gk_supervisor_begin
    .quad gk_supervisor_end
    .quad gk_data_begin
    .quad gk_data_end
    .quad gk_entry_rip
    .quad gk_touch
    .quad gk_stub_entry
    .quad gk_cpuid_entry
    .quad gk_ready

/* ---- CPL 0 ------------------------------------------------------------------------------------------- */
.section .supervisor, "ax"

/* Hardware entry. SYSCALL arrives here at CPL 0 with the program's RIP in RCX and RFLAGS in R11. SYSRET continues in
   the guest kernel at CPL 3, with all other registers unchanged. */
.globl gk_hardware_entry
gk_hardware_entry:
    movq %rcx, gk_entry_rip(%rip)
    leaq gk_syscall_common(%rip), %rcx
    sysretq

/* Exception stubs, 16 bytes each. They push a zero for vectors without error code, then exit to the host, which edits
   the frame (abi::ExceptionFrame) to set where to continue. */
.macro stub vector, has_error
    .balign 16
    .if \has_error == 0
    pushq $0
    .endif
    pushq $\vector
    jmp exception_common
.endm
.balign 16
.globl gk_exception_stubs
gk_exception_stubs:
    stub 0,0
    stub 1,0
    stub 2,0
    stub 3,0
    stub 4,0
    stub 5,0
    stub 6,0
    stub 7,0
    stub 8,1
    stub 9,0
    stub 10,1
    stub 11,1
    stub 12,1
    stub 13,1
    stub 14,1
    stub 15,0
    stub 16,0
    stub 17,1
    stub 18,0
    stub 19,0
    stub 20,0
    stub 21,1
    stub 22,0
    stub 23,0
    stub 24,0
    stub 25,0
    stub 26,0
    stub 27,0
    stub 28,0
    stub 29,1
    stub 30,1
    stub 31,0
.balign 16
exception_common:
    /* abi::kPortException. It fits in an immediate byte, so that no register of the program changes. */
    outl %eax, $0xe0
    addq $16, %rsp
    iretq

/* ---- CPL 3 ------------------------------------------------------------------------------------------- */
.text

.globl gk_boot_entry
gk_boot_entry:
    leaq gk_boot_stack_top(%rip), %rsp
    xorl %ebp, %ebp
    call gk_boot
    ud2

/* Prefaults pages, so that KVM maps them (abi::KernelHeader::touch_entry). The write access changes no data. */
gk_touch:
    movq (%rdi), %rax
    addq $8, %rdi
    btrq $0, %rax
    jc 1f
    movb (%rax), %cl
    jmp 2f
1:  lock orb $0, (%rax)
2:  decq %rsi
    jnz gk_touch
    movl $0x5a1, %edx               /* abi::kPortWait */
    outb %al, %dx
    ud2

/* Entry from a stub that the program's code jumps to in place of SYSCALL. RCX holds what SYSCALL would put there.
   RFLAGS are still the program's, and must be saved before any instruction changes them. */
.globl gk_stub_entry
gk_stub_entry:
    movq %rcx, gk_entry_rip(%rip)
    movq %rsp, gk_user_rsp(%rip)
    movq gk_kernel_stack(%rip), %rsp
    pushfq
    popq %r11
    jmp gk_syscall_save

/* PVM entry: SYSCALL arrives here, still at CPL 3. */
.globl gk_syscall_entry
gk_syscall_entry:
    movq %rcx, gk_entry_rip(%rip)
.globl gk_syscall_common
gk_syscall_common:
    movq %rsp, gk_user_rsp(%rip)
    movq gk_kernel_stack(%rip), %rsp
gk_syscall_save:
    pushq gk_user_rsp(%rip)
    pushq %r11
    pushq gk_entry_rip(%rip)
    pushq %rax                      /* orig_rax */
    pushq %rdi
    pushq %rsi
    pushq %rdx
    pushq %rcx
    pushq %rax
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, %rdi
    cld
    call gk_syscall
    movq %rax, %rdi
    jmp gk_resume_user

/* Preemption and faults: the host set RIP to here; all other registers are the program's. No instruction may change
   RFLAGS before they are saved. */
.macro full_entry handler
    movq %rsp, gk_user_rsp(%rip)
    movq gk_kernel_stack(%rip), %rsp
    pushq gk_user_rsp(%rip)
    pushfq
    pushq gk_entry_rip(%rip)
    pushq $-1
    pushq %rdi
    pushq %rsi
    pushq %rdx
    pushq %rcx
    pushq %rax
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, %rdi
    cld
    call \handler
    movq %rax, %rdi
    jmp gk_resume_user
.endm
.globl gk_preempt_entry
gk_preempt_entry:
    full_entry gk_preempt
.globl gk_fault_entry
gk_fault_entry:
    full_entry gk_fault

/* Entry from a stub that the program's code jumps to in place of CPUID. The program's RIP is in RDX, which CPUID
   overwrites anyway. */
.globl gk_cpuid_entry
gk_cpuid_entry:
    movq %rdx, gk_entry_rip(%rip)
    full_entry gk_cpuid

/* The calls kReady and kReturned (guest/function_call.cpp). A ready thread goes on at gk_ready, whatever its registers
   but RSP; a function that the host called returns to gk_returned. */
.globl gk_ready
gk_ready:
    movl $960, %eax                 /* abi::kReady */
    leaq gk_ready(%rip), %rcx
    jmp gk_stub_entry
.globl gk_returned
gk_returned:
    movq %rax, %rdi
    movq %xmm0, %rsi
    movl $962, %eax                 /* abi::kReturned */
    leaq gk_returned(%rip), %rcx
    jmp gk_stub_entry

/* Begins a function: R10 is its address, R11 that of the real arguments. */
.globl gk_begin_function
gk_begin_function:
    movsd (%r11), %xmm0
    movsd 8(%r11), %xmm1
    movsd 16(%r11), %xmm2
    movsd 24(%r11), %xmm3
    movsd 32(%r11), %xmm4
    movsd 40(%r11), %xmm5
    movsd 48(%r11), %xmm6
    movsd 56(%r11), %xmm7
    jmp *%r10

/* void gk_resume_user(Regs*): returns to the program by a plain jump. A preemption in here finds RIP in the guest
   kernel and only sets Shared::preempt, so nothing else writes gk_resume_rip meanwhile. */
.globl gk_resume_user
gk_resume_user:
    movq %rdi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rax
    popq %rcx
    popq %rdx
    popq %rsi
    popq %rdi
    leaq 8(%rsp), %rsp
    popq gk_resume_rip(%rip)
    popfq
.globl gk_resume_begin
gk_resume_begin:
    popq %rsp
    jmp *gk_resume_rip(%rip)
.globl gk_resume_end
gk_resume_end:

/* void gk_switch(u64* save_rsp, u64 load_rsp): switch kernel stacks. */
.globl gk_switch
gk_switch:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    ret

/* Where a new thread starts on its kernel stack, with its Regs at the top. */
.globl gk_thread_start
gk_thread_start:
    call gk_thread_begin
    movq %rax, %rdi
    jmp gk_resume_user

/* void gk_wait_out(): tells the host that every thread is blocked. A machine that was reset or restored continues at
   gk_wait_resume with undefined registers but RDI: all state is in memory. */
.globl gk_wait_out
gk_wait_out:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, gk_wait_rsp(%rip)
    movl $0x5a1, %edx
    xorl %eax, %eax
    xorl %edi, %edi
    outl %eax, %dx
.globl gk_wait_resume
gk_wait_resume:
    /* PVM does not load null selectors: values left by another program of this host thread would remain. */
    xorl %eax, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %fs
    movl %eax, %gs
    /* Nor does it restore PKRU, which the last invocation may have set: before any access to memory. */
    testl %edi, %edi
    jz 1f
    xorl %ecx, %ecx
    xorl %edx, %edx
    wrpkru
1:
    movq gk_wait_rsp(%rip), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    cld
    ret

/* void gk_host_out(): makes the host call in Shared::call. */
.globl gk_host_out
gk_host_out:
    movl $0x5a0, %edx
    outl %eax, %dx
    ret

/* u64 gk_copy_raw(void* to, const void* from, u64 bytes): returns the bytes not copied. Either address may fault. */
.globl gk_copy_raw
gk_copy_raw:
    movq %rdx, %rcx
gk_user_copy_begin:
    rep movsb
gk_user_copy_end:
gk_user_copy_fixup:
    movq %rcx, %rax
    ret

.globl memcpy
memcpy:
    movq %rdi, %rax
    movq %rdx, %rcx
    rep movsb
    ret
.globl memset
memset:
    movq %rdi, %r8
    movl %esi, %eax
    movq %rdx, %rcx
    rep stosb
    movq %r8, %rax
    ret

.data
.balign 8
.globl gk_entry_rip, gk_user_rsp, gk_kernel_stack, gk_resume_rip, gk_wait_rsp
gk_entry_rip: .quad 0
gk_user_rsp: .quad 0
gk_kernel_stack: .quad 0
gk_resume_rip: .quad 0
gk_wait_rsp: .quad 0

.section .bss.large, "aw", @nobits
.balign 16
gk_boot_stack: .skip 16384
.globl gk_boot_stack_top
gk_boot_stack_top:
.section .note.GNU-stack,"",@progbits
