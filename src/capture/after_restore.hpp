// The after-restore hook: one request that a restored program is made before all others, with the values that
// were not to be frozen in its snapshot.
#pragma once
#include <memory>
#include <string>

#include "src/setup/setup.hpp"

namespace kvmserver {

// Clones a machine from the image, sends it `POST path` with `body` (JSON) and gives the image of what it
// then is: the pristine state of all requests. `image` is used up, its memory is what the new one is made of
// (Machine::merge_into); it may still be filling. Throws UserError when the
// program ends, does not answer within max-request-time, or answers with a status other than 200 to 299.
std::shared_ptr<tinykvm::MachineImage> after_restore(const Setup& setup, std::shared_ptr<tinykvm::MachineImage> image,
                                                     const std::string& path, const std::string& body);

} // namespace kvmserver
