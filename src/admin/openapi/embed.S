# Embeds the parts of the OpenAPI document that openapi.cpp puts together.
    .section .rodata
.macro embedded name, file
    .globl kvmserver_openapi_\name
    .globl kvmserver_openapi_\name\()_end
kvmserver_openapi_\name:
    .incbin "\file"
kvmserver_openapi_\name\()_end:
.endm
    embedded shapes, shapes.json
    embedded daemon_shapes, daemon_shapes.json
    embedded history_shapes, history_shapes.json
    embedded measurement_shapes, measurement_shapes.json
    embedded parts, parts.json
    .section .note.GNU-stack, "", @progbits
