#include "src/runner/assignment.hpp"

#include <charconv>
#include <string_view>
#include <utility>

#include "src/protocol/worker_messages.hpp"
#include "tinykvm/base/read.hpp"

namespace kvmserver {

using namespace tinykvm;

std::optional<Assignment> receive_assignment(int control, const jail::Jail& jail) {
    UniqueFd files[5];
    for (UniqueFd& file : files) {
        auto received = protocol::receive(control, protocol::Wait::yes);
        if (received && received->message.kind == protocol::Kind::walls) {
            answer(control, jail::text_of(jail.missing()));
            return std::nullopt;
        }
        if (!received || received->message.kind != protocol::Kind::assign || !received->fd)
            return std::nullopt;
        file = std::move(received->fd);
    }
    const std::string text = read_text(files[0].get(), "the assignment");
    const auto middle = text.find('\n'), end = text.find('\n', middle + 1);
    if (end == std::string::npos)
        return std::nullopt;
    const std::string_view rest = std::string_view(text).substr(end + 1);
    std::string ceilings = read_text(files[4].get(), "the ceilings");
    const bool report_excess = ceilings.starts_with(protocol::kReportExcess);
    std::vector<std::string> environment;
    const std::string variables = read_text(files[3].get(), "the environment");
    for (std::size_t at = 0, nul; (nul = variables.find('\0', at)) != variables.npos; at = nul + 1)
        environment.push_back(variables.substr(at, nul - at));
    auto pieces = receive_pieces(control, text.substr(0, middle));
    if (!pieces)
        return std::nullopt;
    auto cache = protocol::receive(control, protocol::Wait::yes);
    if (!cache || cache->message.kind != protocol::Kind::cache)
        return std::nullopt;
    Assignment assignment;
    if (cache->message.more_follows) {
        auto storage = protocol::receive(control, protocol::Wait::yes);
        if (!storage || storage->message.kind != protocol::Kind::storage || !storage->fd)
            return std::nullopt;
        assignment.storage = std::move(storage->fd);
    }
    assignment.name = text.substr(0, middle);
    assignment.after_restore = text.substr(middle + 1, end - middle - 1);
    assignment.list = std::move(files[1]);
    assignment.pieces = *std::move(pieces);
    assignment.values = std::move(files[2]);
    assignment.cache = std::move(cache->fd);
    assignment.environment = std::move(environment);
    assignment.ceilings = ceilings_from_text(ceilings.substr(report_excess ? 1 : 0));
    assignment.report_excess = report_excess;
    assignment.suspends = rest == protocol::kSuspends;
    assignment.kept = assignment.suspends || rest == protocol::kKept;
    if (rest.starts_with(protocol::kRests)) {
        unsigned milliseconds = 0;
        std::from_chars(rest.data() + protocol::kRests.size(), rest.data() + rest.size(), milliseconds);
        assignment.rests_after = std::chrono::milliseconds(milliseconds);
    }
    if (assignment.suspends) {
        auto state = protocol::receive(control, protocol::Wait::yes);
        if (!state || state->message.kind != protocol::Kind::state)
            return std::nullopt;
        assignment.state = std::move(state->fd);
        assignment.state_grows = state->message.more_follows != 0;
        assignment.state_bytes = state->message.state_bytes;
    }
    return assignment;
}

} // namespace kvmserver
