// The before-snapshot hook: one request to a program after its warm-up, before its image is taken. It closes what a
// restored machine will not have, and forgets what must not be in a snapshot.
#pragma once
#include <memory>
#include <string>

#include "src/setup/setup.hpp"

namespace kvmserver {

// Clones a machine from the image, sends it `POST path`, and returns the image of the result, compact. Throws UserError
// as run_hook() does.
std::shared_ptr<tinykvm::MachineImage>
before_snapshot(const Setup& setup, const std::shared_ptr<const tinykvm::MachineImage>& image, const std::string& path);

} // namespace kvmserver
