// Tells from replies to the same request which random values every invocation would repeat.
//
// A generator that was seeded before the image was taken gives two values in one machine, one after the other, and the
// same first value in every clone. Values that clones draw for themselves differ between them; what is constant is
// equal in one machine, too; times are later in the clone that is asked later.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace kvmserver::unique {

// A token of a reply: 8 and more letters, digits, '-', '_', '+', '/' or '.', such as a session id, a UUID, a key in
// base64, and fractions (0.7318...). Not what looks like a counter or a plain word.
struct Repeat {
    std::string value;
    std::string where; // "header x-request-id" or "body"
};

// `first` and `second`: what one machine answered to the same request, one after the other. `other`: what clones with
// entropy of their own answered first; at least one. Replies are HTTP or anything. At most 8, in the order of `first`.
std::vector<Repeat> find_repeats(std::string_view first, std::string_view second,
                                 const std::vector<std::string>& others);

} // namespace kvmserver::unique
