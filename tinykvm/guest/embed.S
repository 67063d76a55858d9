.section .rodata
.balign 4096
.globl tinykvm_guest_kernel_begin, tinykvm_guest_kernel_end
tinykvm_guest_kernel_begin:
    .incbin GUEST_KERNEL
tinykvm_guest_kernel_end:
.section .note.GNU-stack,"",@progbits
