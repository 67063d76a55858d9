.section .rodata
.balign 4096
.globl tinykvm_guest_kernel_begin, tinykvm_guest_kernel_end
tinykvm_guest_kernel_begin:
    .incbin GUEST_KERNEL
tinykvm_guest_kernel_end:
.balign 16 // compilers rely on it: psABI 3.1.2, arrays of 16 bytes and more
.globl tinykvm_guest_kernel_sha256
tinykvm_guest_kernel_sha256: // as sha256sum prints it: 64 digits first
    .incbin GUEST_KERNEL_SHA256, 0, 64
.section .note.GNU-stack,"",@progbits
