#include "src/runner/state_saver.hpp"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "src/capture/random_state.hpp"
#include "src/protocol/worker_messages.hpp"
#include "src/setup/report.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/same_file.hpp"
#include "tinykvm/machine/restore.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {
constexpr const char* kWhat = "save the state of a machine";
} // namespace

void StateSaver::finish() {
    if (thread_.joinable())
        thread_.join();
}

StateSaver::Plan StateSaver::plan_for(int file, std::vector<Frame> all) {
    Plan plan{{}, std::move(all)};
    if (file_ && written_.parts < kMostStateParts && same_file(file, file_.get()))
        plan = {written_, std::move(since_)};
    else if (::ftruncate(file, 0) < 0)
        throw_errno(kWhat);
    since_.clear();
    std::ranges::sort(plan.frames);
    plan.frames.erase(std::unique(plan.frames.begin(), plan.frames.end()), plan.frames.end());
    return plan;
}

void StateSaver::save(const MachineImage& image, int file, const Digest& base, std::vector<Frame> all) {
    const Plan plan = plan_for(file, std::move(all));
    file_.reset(); // what comes after a failure begins anew
    write_state(file, plan.before, base, to_state(image, setup_.env, setup_.program), image.image->bytes(), plan.frames,
                kWhat);
}

void StateSaver::save_behind(std::shared_ptr<const MachineImage> image, bool find, UniqueFd file, const Digest& base,
                             std::vector<Frame> all, UniqueFd done) {
    found_.reset();
    try {
        Plan plan = plan_for(file.get(), std::move(all));
        file_.reset();
        MachineState state = to_state(*image, setup_.env, setup_.program);
        thread_ = std::thread([this, image = std::move(image), find, file = std::move(file), done = std::move(done),
                               base, plan = std::move(plan), state = std::move(state)]() mutable {
            try {
                if (find)
                    state.entropy = found_.emplace(random_state_in(*image));
                written_ = write_state(file.get(), plan.before, base, state, image->image->bytes(), plan.frames, kWhat);
                file_ = std::move(file);
                protocol::Message message;
                message.kind = protocol::Kind::checkpoint;
                message.state_bytes = written_.bytes;
                protocol::send(done.get(), message); // the daemon may no longer wait for it
            } catch (const std::exception& error) {
                note_line(error.what());
            }
            done.reset();
        });
    } catch (const std::exception& error) { // such as no thread: the machine goes on
        note_line(error.what());
    }
}

} // namespace kvmserver
