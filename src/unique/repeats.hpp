// Finds random values that every invocation would repeat, from replies to the same request.
//
// A generator that was seeded before the image was taken gives two different values in one machine, one after the
// other, and the same first value in every clone. Values that clones draw for themselves differ between clones.
// Constants are equal even in one machine. Times are later in a clone that is asked later.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace kvmserver::unique {

// `value` is a token of a reply: 8 or more letters, digits, '-', '_', '+', '/' or '.', such as a session id, a UUID, a
// key in base64, or a fraction (0.7318...). Tokens that look like a counter or a plain word do not count.
struct Repeat {
    std::string value;
    std::string where; // "header x-request-id" or "body"
};

// `first` and `second` are successive replies of one machine to the same request. `others`, at least one, are first
// replies of clones with entropy of their own. Replies may be HTTP or anything else. Returns at most 8, in the order of
// `first`.
std::vector<Repeat> find_repeats(std::string_view first, std::string_view second,
                                 const std::vector<std::string>& others);

} // namespace kvmserver::unique
