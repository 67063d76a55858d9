// --hugepages and --hugepage-requests-arena: memory of machines in huge pages of the host, as far as it has them. What
// cannot be had is told in one line, and ordinary pages take its place.
#pragma once
#include "src/setup/options.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

// Throws UserError (usage) when a request may not have as much memory as the arena that was asked for.
void check_arena(const tinykvm::Limits& limits);
// For machines that keep their state: tells that they have no arena, if one was asked for.
void tell_arena_unused(const Setup& setup);

// Moves what --hugepages asks for of an image, all of which is loaded. Before any clone is made.
void use_huge_pages(const Options& options, tinykvm::Image& image);
// The same for a machine that has booted and will not be cloned.
void use_huge_pages(const Options& options, tinykvm::Machine& booted);
// Tells how many of the bytes that were wanted are in huge pages: always if none are, else if `verbose`.
void tell_huge_pages(std::uint64_t wanted, std::uint64_t got, bool verbose);

// Tells what the arena of a request machine is made of: always if it is not of huge pages, else if `verbose`.
void tell_arena(tinykvm::ArenaPages pages, bool verbose);

} // namespace kvmserver
