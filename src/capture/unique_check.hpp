// Looks before an image is used whether its invocations would draw the same random values.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/setup/setup.hpp"

namespace kvmserver {

// Asks for --warmup-path twice in one clone of the image and once in two others, on trial. Tells, and returns, what
// every request would repeat, a line each, or in one line that this is not known: it is not for a program that does not
// answer on trial (`answers`: it did once). Throws UserError(failure) instead if --strict-unique is on.
std::vector<std::string> check_unique(const Setup& setup, const Options& options,
                                      const std::shared_ptr<const tinykvm::MachineImage>& image, bool answers);

} // namespace kvmserver
