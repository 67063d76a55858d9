// Checks before an image is used whether its invocations would draw the same random values.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/setup/setup.hpp"

namespace kvmserver {

// What clones of an image replied to one request: one clone that was asked twice, and another.
struct Replies {
    std::string first, second, other;
};

struct Tried { // in trials before
    bool answered = true;
    std::optional<Replies> replies; // to the warm-up request, if there is one only
};

// Sends each warm-up request twice to one clone of the image and once to two others, in trials, unless `tried` has
// the replies. Logs and returns one line for each value that every invocation would repeat, and returns one for each
// request that is not answered, of which this is unknown. With --strict-unique, throws UserError(failure) instead.
// `note` logs a line.
using NoteLine = std::function<void(const std::string&)>;
std::vector<std::string> check_unique(const Setup& setup, const Options& options,
                                      const std::shared_ptr<const tinykvm::MachineImage>& image, const Tried& tried,
                                      const NoteLine& note);

} // namespace kvmserver
