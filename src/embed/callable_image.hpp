// An image of a program that is ready for calls of its functions.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "src/embed/world.hpp"
#include "src/snapshot/image_loader.hpp"

namespace kvmserver::embed {

class CallableMachine;

// Immutable; any number of threads may use one. Failures throw UserError or HostError.
class CallableImage : public std::enable_shared_from_this<CallableImage> {
public:
    static std::shared_ptr<const CallableImage> boot(const Settings& settings, Listener listener);
    // From a snapshot file. `settings` may be null: see world_for_snapshot().
    static std::shared_ptr<const CallableImage> restore(const std::string& file, const Settings* settings,
                                                        Listener listener);
    // Writes a snapshot file. `rehearse` may be empty; it gets a machine that has no effect outside.
    void save(const std::string& file, const std::function<void(CallableMachine&)>& rehearse) const;
    std::uint64_t symbol(const std::string& name) const;

    const World& world() const { return *world_; }
    const std::shared_ptr<const tinykvm::MachineImage>& image() const { return image_; }

private:
    CallableImage(std::shared_ptr<World> world, std::shared_ptr<const tinykvm::MachineImage> image)
        : world_(std::move(world)), image_(std::move(image)) {}

    std::shared_ptr<World> world_;
    std::shared_ptr<const tinykvm::MachineImage> image_;
    mutable std::mutex mutex_; // of the symbols
    mutable std::map<std::string, std::uint64_t> symbols_;
};

} // namespace kvmserver::embed
