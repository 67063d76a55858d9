// Stacks for coroutines, with a guard page, kept for reuse: in a process with machines each munmap tells every one of
// them. One pool a thread.
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
    std::vector<void*> free_; // tops
};

// What Asio copies around.
struct StackAllocator {
    StackPool* pool;
    boost::context::stack_context allocate() { return pool->take(); }
    void deallocate(boost::context::stack_context& stack) { pool->give_back(stack); }
};

} // namespace kvmserver::http
