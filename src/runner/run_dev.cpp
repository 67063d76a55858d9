#include "src/runner/run_dev.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <exception>
#include <optional>
#include <thread>

#include "src/capture/capture_timing.hpp"
#include "src/capture/unique_check.hpp"
#include "src/capture/warm_up.hpp"
#include "src/runner/announce.hpp"
#include "src/runner/outside.hpp"
#include "src/runner/own_jail.hpp"
#include "src/runner/workers.hpp"
#include "src/setup/boot.hpp"
#include "src/setup/report.hpp"
#include "src/setup/storage.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/restore.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

// Passes the image through the plain values of a snapshot, so that its files are reopened and its connections are lost
// as they will be after `deploy`. The memory stays where it is.
std::shared_ptr<MachineImage> as_restored(const Setup& setup, const MachineImage& image) {
    std::vector<std::string> warnings;
    auto restored = from_state(to_state(image, setup.env, setup.program), image.image, *setup.policy, warnings);
    for (const std::string& warning : warnings)
        note_line(warning);
    return restored;
}

// Until now addresses were only recorded. Listens with the inherited socket in place of the first.
void listen_first(Listeners& listeners, const std::vector<ListenerState>& states) {
    listeners.close_all();
    listeners.set_dry(false);
    listeners.open({states.begin(), states.begin() + std::min<std::ptrdiff_t>(1, std::ssize(states))});
    if (states.size() > 1)
        note_line(fmt::format("dev serves the program's first address only, of {}", states.size()));
}

// Checks on another thread whether random values repeat, when the first requests have been answered.
class CheckBehind {
public:
    CheckBehind(const Setup& setup, const Options& options, std::shared_ptr<const MachineImage> image)
        : thread_([this, &setup, &options, image = std::move(image)] {
              constexpr int kHeadStartMs = 100;
              pollfd stopped{stop_.fd(), POLLIN, 0};
              if (::poll(&stopped, 1, kHeadStartMs) != 0)
                  return;
              try {
                  check_unique(setup, options, image, {}, note_line);
              } catch (const std::exception& error) {
                  note_line(fmt::format("whether random values repeat is not known: {}", error.what()));
              }
          }) {}
    CheckBehind(const CheckBehind&) = delete;
    CheckBehind& operator=(const CheckBehind&) = delete;
    ~CheckBehind() {
        stop_.request();
        thread_.join();
    }

private:
    Stopper stop_;
    std::thread thread_; // last: it uses the members above
};

} // namespace

int run_dev(const Options& options) {
    set_note_sink(options.notes);
    OwnJail jail(options);
    StopSignal::instance();
    const auto setup = set_up_program(options);
    if (options.jail != jail::Mode::off && !options.permissions.all)
        setup->policy->ask_about_host(existence_outside());
    setup->listeners->set_dry(true);
    std::optional<Storage> storage;
    if (options.storage)
        storage.emplace(*options.storage);
    if (storage && options.jail != jail::Mode::off && !options.storage->permissions.all)
        storage->setup().policy->ask_about_host(existence_outside());
    jail.enter(*setup, options, false, storage ? &storage->setup() : nullptr);
    if (storage && !storage->boot())
        return static_cast<int>(ExitCode::failure);
    Booted booted = boot_program(*setup, options, {});
    // Without a server the command fails, whatever the program's own exit status.
    if (!booted.machine || !prepare_for_image(booted, options, program_name(setup->program)))
        return static_cast<int>(booted.end == LoopEnd::timeout ? ExitCode::unreachable : ExitCode::failure);
    const double boot_seconds = booted.seconds;
    const auto image = as_restored(*setup, *take_image(*setup, options, std::move(booted)).image);
    if (options.strict_unique)
        check_unique(*setup, options, image, {}, note_line);
    if (uses_dirty_bits(*setup, options))
        clear_marks(*image, *image->image);
    listen_first(*setup->listeners, image->listeners);
    announce(*setup, options, boot_seconds, "booted");
    if (storage) // only now: a deployed function cannot connect while it boots either
        setup->env.neighbours = &storage->first();
    std::optional<CheckBehind> behind;
    if (!options.strict_unique)
        behind.emplace(*setup, options, image);
    const int code = serve(*setup, options, image, storage ? &*storage : nullptr);
    return storage && storage->exit_code() != 0 ? storage->exit_code() : code;
}

} // namespace kvmserver
