// How a request to etcd fails. what() is one line with where, what, and how to mend it.
#pragma once
#include <string>

#include "tinykvm/base/error.hpp"

namespace kvmserver::etcd {

// No endpoint is reached or answers in time, or the cluster has no leader. It may pass.
class Away : public tinykvm::UserError {
public:
    Away(const std::string& message, bool maybe)
        : UserError(tinykvm::ExitCode::unreachable, message), maybe_done(maybe) {}
    // The request was sent, and whether it took effect is not known. Never true for get() and range().
    bool maybe_done;
};

// The service answered with an error, or with what is not etcd's. The request took no effect.
// The exit code is not_permitted if it is about credentials or roles, else failure.
class Refused : public tinykvm::UserError {
public:
    using UserError::UserError;
};

} // namespace kvmserver::etcd
