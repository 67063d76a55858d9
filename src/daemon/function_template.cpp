#include "src/daemon/function_template.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>
#include <vector>

#include "src/jail/shared_network.hpp"
#include "src/jail/spawn.hpp"
#include "src/protocol/worker_messages.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using tinykvm::UniqueFd;

std::optional<ForkedFunction> fork_functions(int control, jail::Mode mode) {
    constexpr std::size_t kLeast = 3; // stdout, stderr, control
    UniqueFd hosts_network = mode == jail::Mode::off ? UniqueFd() : jail::enter_shared_network();
    for (;;) {
        const auto received = protocol::receive_files(control);
        if (!received || received->message.kind != protocol::Kind::fork)
            return std::nullopt;
        protocol::Message answer;
        answer.kind = protocol::Kind::fork;
        jail::Forked forked;
        if (received->lost || received->files.size() < kLeast) {
            forked.error = EMFILE;
        } else {
            const auto& files = received->files;
            const int group = files.size() > kLeast ? files[kLeast].get() : -1;
            try {
                forked = jail::fork_process(
                    {{files[0].get(), STDOUT_FILENO}, {files[1].get(), STDERR_FILENO}, {files[2].get(), control}},
                    group, mode);
            } catch (const tinykvm::HostError& error) { // no descriptors are left
                forked.error = error.code().value();
            }
            if (forked.process.pid == 0)
                return ForkedFunction{received->message.state_bytes, std::move(hosts_network)};
        }
        answer.left = static_cast<std::uint32_t>(std::max(forked.process.pid, 0));
        answer.state_bytes = static_cast<std::uint64_t>(forked.error);
        if (!protocol::send(control, answer, forked.error == 0 ? forked.process.pid_fd.get() : -1))
            return std::nullopt;
    }
}

} // namespace kvmserver::daemon
