// Embeds the files of the web page from the source tree.
    .section .rodata
.macro embedded name, file
    .globl kvmserver_ui_\name
    .globl kvmserver_ui_\name\()_end
kvmserver_ui_\name:
    .incbin "\file"
kvmserver_ui_\name\()_end:
.endm
    embedded html, index.html
    embedded js, app.js
    embedded charts, charts.js
    embedded css, style.css
    .section .note.GNU-stack, "", @progbits
