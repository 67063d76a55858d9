// Pieces of a snapshot that the daemon sends while the function serves already (src/protocol/worker_messages.hpp).
#pragma once
#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "src/runner/daemon_messages.hpp"
#include "src/snapshot/byte_source.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

class LaterPieces final : public ArrivingPieces {
public:
    // Receives on a thread of its own until the daemon closes `link`. `function` is for messages.
    LaterPieces(tinykvm::UniqueFd link, std::string function);
    ~LaterPieces() override;
    LaterPieces(const LaterPieces&) = delete;
    LaterPieces& operator=(const LaterPieces&) = delete;

    int wait_for(std::size_t piece) override; // asks the daemon to send it next

private:
    void receive();

    const tinykvm::UniqueFd link_;
    const std::string function_;
    std::mutex mutex_; // guards the following
    std::map<std::size_t, tinykvm::UniqueFd> files_;
    std::set<std::size_t> asked_;
    bool ended_ = false; // nothing more will come
    std::condition_variable changed_;
    std::thread receiver_;
};

// The snapshot whose pieces came, all or some of them. `list` and errors: open_pieces_source().
std::unique_ptr<ByteSource> open_received(int list, ReceivedPieces pieces, const std::string& function);

} // namespace kvmserver
