// The storage of a function ([function.storage]): connections to another function, by way of the daemon
// (src/protocol/storage_messages.hpp).
#pragma once
#include <functional>
#include <mutex>
#include <string>

#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/machine/neighbours.hpp"

namespace kvmserver {

class StorageClient final : public tinykvm::Neighbours {
public:
    // `daemon`: the socket to the daemon. `note` gets a line about a storage that cannot be reached, not each time.
    StorageClient(tinykvm::UniqueFd daemon, std::function<void(const std::string&)> note)
        : daemon_(std::move(daemon)), note_(std::move(note)) {}

    tinykvm::UniqueFd connect(const Address& to, const Address& from) override;

private:
    const tinykvm::UniqueFd daemon_;
    const std::function<void(const std::string&)> note_;
    std::mutex asking_; // held from a request to its answer, as it guards
    std::string noted_;
};

} // namespace kvmserver
