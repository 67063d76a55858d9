// Embeds the files of the web page from the source tree. ui.cpp names them.
    .section .rodata
.macro embedded name, file
    .globl kvmserver_ui_\name
    .globl kvmserver_ui_\name\()_end
kvmserver_ui_\name:
    .incbin "\file"
kvmserver_ui_\name\()_end:
.endm
    embedded html, index.html
    embedded css, style.css
    embedded about, about.js
    embedded addresses, addresses.js
    embedded api, api.js
    embedded app, app.js
    embedded charts, charts.js
    embedded dialog, dialog.js
    embedded failures, failures.js
    embedded invoke, invoke.js
    embedded logs, logs.js
    embedded page, page.js
    embedded traffic, traffic.js
    embedded values, values.js
    embedded versions, versions.js
    .section .note.GNU-stack, "", @progbits
