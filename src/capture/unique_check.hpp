// Checks before an image is used whether its invocations would draw the same random values.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/setup/setup.hpp"

namespace kvmserver {

// Sends each warm-up request twice to one clone of the image and once to two others, in trials. Logs and returns one
// line for each value that every invocation would repeat, and returns one for each request that is not answered
// (`answers`: whether they were before), of which this is unknown. With --strict-unique, throws UserError(failure)
// instead. `note` logs a line.
using NoteLine = std::function<void(const std::string&)>;
std::vector<std::string> check_unique(const Setup& setup, const Options& options,
                                      const std::shared_ptr<const tinykvm::MachineImage>& image, bool answers,
                                      const NoteLine& note);

} // namespace kvmserver
