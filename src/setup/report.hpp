// What the command tells its user: lines on stderr and exit codes.
#pragma once
#include <string>

#include "src/event_loop/event_loop.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

// A diagnostic to stderr, one whole line at a time.
void note_line(const std::string& line);

// How lines call a program: its script's or its own name, without the folder.
std::string program_name(const tinykvm::ProgramSpec& program);

// What a program was refused while it ran, and what would have allowed it.
void tell_refusals(const std::string& name, const EventLoop& loop);

// The exit code for a machine that stopped, having told why.
int report_stop(const std::string& name, const tinykvm::Stop& stop);

} // namespace kvmserver
