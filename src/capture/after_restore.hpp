// The after-restore hook: one request to a restored program before all others. It passes in values that must not be in
// the snapshot.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/setup/setup.hpp"

namespace kvmserver {

// Clones a machine from the image and sends it `POST path` with `body` (JSON). Returns an image of the result, which is
// the pristine state of all invocations. Consumes `image`: the new image reuses its memory (Machine::merge_into).
// `image` may still be loading. Throws UserError as run_hook() does.
// Appends to `changed`, if it is given, the frames of the result that differ from the image.
std::shared_ptr<tinykvm::MachineImage> after_restore(const Setup& setup, std::shared_ptr<tinykvm::MachineImage> image,
                                                     const std::string& path, const std::string& body,
                                                     std::vector<tinykvm::Frame>* changed = nullptr);

} // namespace kvmserver
