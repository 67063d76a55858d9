// Verifies pieces of a snapshot on other threads, while its file is stored.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "src/ops/import.hpp"

namespace kvmserver::ops {

// add() and finish() are for one thread.
class PieceVerifier {
public:
    // `cut` must outlive this object.
    explicit PieceVerifier(const CutFile& cut) : cut_(cut) {}
    ~PieceVerifier(); // gives up what is not verified yet
    PieceVerifier(const PieceVerifier&) = delete;
    PieceVerifier& operator=(const PieceVerifier&) = delete;

    void add(std::size_t piece);
    // Waits for all pieces. Throws what CutFile::verify() threw for one of them.
    void finish();

private:
    void work();
    void join();

    const CutFile& cut_;
    std::mutex mutex_; // guards the members below
    std::condition_variable changed_;
    std::deque<std::size_t> waiting_;
    bool complete_ = false; // no piece will be added
    std::exception_ptr failure_;

    std::vector<std::thread> threads_;
    bool started_ = false;
};

} // namespace kvmserver::ops
