// Checks before an image is used whether its invocations would draw the same random values.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/setup/setup.hpp"

namespace kvmserver {

// Requests --warmup-path twice from one clone of the image and once from two others, in trials. Logs and returns one
// line for each value that every invocation would repeat. If the program does not answer in a trial (`answers`: it did
// so before), the only line says that this is unknown. With --strict-unique, throws UserError(failure) instead. `note`
// logs a line.
using NoteLine = std::function<void(const std::string&)>;
std::vector<std::string> check_unique(const Setup& setup, const Options& options,
                                      const std::shared_ptr<const tinykvm::MachineImage>& image, bool answers,
                                      const NoteLine& note);

} // namespace kvmserver
