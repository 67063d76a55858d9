#include "src/http/stack_pool.hpp"

#include <sys/mman.h>

#include "tinykvm/base/error.hpp"

namespace kvmserver::http {
namespace {
constexpr std::size_t kGuard = 4096;
constexpr std::size_t kStack = 256 * 1024; // a connection touches about 12 KiB of it
} // namespace

boost::context::stack_context StackPool::take() {
    if (free_.empty()) {
        free_.reserve(all_.size() + 1); // so that give_back() cannot fail
        auto memory = tinykvm::Mapping::map(kGuard + kStack, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, "a coroutine's stack");
        if (mprotect(memory.data(), kGuard, PROT_NONE) != 0)
            tinykvm::throw_errno("mprotect of a coroutine's stack");
        all_.push_back(std::move(memory));
        free_.push_back(all_.back().data() + kGuard + kStack);
    }
    boost::context::stack_context stack;
    stack.size = kStack;
    stack.sp = free_.back();
    free_.pop_back();
    return stack;
}

void StackPool::give_back(const boost::context::stack_context& stack) { free_.push_back(stack.sp); }

} // namespace kvmserver::http
