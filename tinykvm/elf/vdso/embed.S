// The built vDSO as read-only data of the library. The build defines the path.
    .section .rodata
    .global tinykvm_vdso_begin, tinykvm_vdso_end
    .hidden tinykvm_vdso_begin, tinykvm_vdso_end
    .balign 4096
tinykvm_vdso_begin:
    .incbin TINYKVM_VDSO_FILE
tinykvm_vdso_end:
    .section .note.GNU-stack, "", @progbits
