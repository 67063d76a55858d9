// Values that go into functions and never come out to people.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/store/function_change.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

struct SecretInfo {
    std::string name;
    std::int64_t changed = 0;
};

// Of one function, or (function "") those that any function may ask for in its manifest.
class Secrets {
public:
    explicit Secrets(Store& store) : store_(store) {}
    // A value, or nothing to unset it (NotFound when there is none). A condition is on the function
    // (StaleEtag); those for all have nothing that it could be compared with (BadValue).
    void set(const std::string& function, const std::string& name, const std::optional<std::string>& value,
             const IfMatch& if_match = {});
    std::vector<SecretInfo> list(const std::string& function); // by name
    // For the machine only: those for all, and over them the function's own (function "": only those for all).
    std::map<std::string, std::string> values(const std::string& function);

private:
    Store& store_;
};

} // namespace kvmserver::store
