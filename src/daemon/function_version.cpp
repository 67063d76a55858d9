#include "src/daemon/function_version.hpp"

#include <fmt/format.h>

namespace kvmserver::daemon {

std::string FunctionVersion::state_id() const {
    return store::SavedState::id_of(fmt::format("{}\n{}\n{}\n{}\n{}{}", facts_.function, facts_.created, facts_.version,
                                                facts_.machine, facts_.given->values.environment,
                                                facts_.given->values.body));
}

std::optional<store::SavedState> FunctionVersion::claim_state(std::shared_ptr<store::Folder> folder,
                                                              int milliseconds) const {
    return store::SavedState::claim(std::move(folder), state_id(),
                                    {facts_.function, facts_.created, facts_.version, facts_.machine}, milliseconds);
}

} // namespace kvmserver::daemon
