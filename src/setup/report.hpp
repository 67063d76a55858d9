// Messages to the user of a command: lines on stderr and exit codes.
#pragma once
#include <string>

#include "src/event_loop/event_loop.hpp"
#include "src/setup/options.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

// Writes a diagnostic to stderr, in one write().
void note_line(const std::string& line);

// Of the process, as stderr is. Call it before threads exist that write diagnostics.
void set_note_sink(NoteSink sink);

// Says that a progress line stands on the terminal of stderr, or not any more: a diagnostic erases it first.
void note_progress_line(bool drawn);

// The program's name in messages: that of its script or file, without the folder.
std::string program_name(const tinykvm::ProgramSpec& program);

// Logs what the program was refused while it ran, and which option would have allowed it.
void report_refusals(const std::string& name, const EventLoop& loop);

// Logs why a machine stopped and returns the exit code for it.
int report_stop(const std::string& name, const tinykvm::Stop& stop);

} // namespace kvmserver
