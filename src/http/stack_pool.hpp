// A pool of coroutine stacks with guard pages. They are reused because each munmap in a process with machines calls the
// MMU notifier of every VM. One pool per thread.
#pragma once
#include <cstddef>
#include <vector>

#include <boost/context/stack_context.hpp>

#include "tinykvm/base/mapping.hpp"

namespace kvmserver::http {

class StackPool {
public:
    boost::context::stack_context take();
    void give_back(const boost::context::stack_context& stack);

private:
    std::vector<tinykvm::Mapping> all_;
    std::vector<void*> free_; // the stacks' tops
};

// Allocator that Asio copies.
struct StackAllocator {
    StackPool* pool;
    boost::context::stack_context allocate() { return pool->take(); }
    void deallocate(boost::context::stack_context& stack) { pool->give_back(stack); }
};

} // namespace kvmserver::http
