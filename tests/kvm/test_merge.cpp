// What a clone has changed, put into its image while that is still filling (Machine::merge_into), against the plain
// way: a copy of all of it.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "tests/kvm/serve_guest.hpp"
#include "tinykvm/machine/renumber.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

// Some frames at a time, as the chunks of a snapshot are; bytes that are all zero are no frame. Once it maps, every
// third chunk is copied.
class Loader final : public ImageLoader {
public:
    static constexpr Frame kChunk = 4;
    Loader(Image& image, std::span<const std::byte> bytes)
        : image_(image), bytes_(bytes), loaded_(bytes.size() / kPageSize / kChunk + 1),
          left_out_(bytes.size() / kPageSize), file_(::memfd_create("parts", MFD_CLOEXEC)) {
        REQUIRE(::write(file_.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    }
    void map() { maps_ = true; }

    void load(Frame frame) override {
        const Frame chunk = frame / kChunk, first = chunk * kChunk;
        if (is_hole(frame) || loaded_[chunk])
            return;
        loaded_[chunk] = true;
        bool holes = false;
        for (Frame each = first; each < first + kChunk; ++each)
            holes = holes || is_hole(each) || left_out(each);
        if (maps_ && !holes && chunk % 3 != 0 && parts_ < Image::kMaxParts) {
            ++parts_;
            image_.add_part({UniqueFd(::dup(file_.get())), std::uint64_t{first} * kPageSize, first, kChunk});
            return;
        }
        for (Frame each = first; each < first + kChunk; ++each)
            if (!is_hole(each) && !left_out(each))
                image_.fill(each, page(each));
    }
    FramePresence presence(Frame frame) const override {
        if (is_hole(frame))
            return FramePresence::hole;
        return left_out(frame) || loaded_[frame / kChunk] ? FramePresence::loaded : FramePresence::absent;
    }
    void leave_out(Frame first, std::uint32_t count) override {
        for (Frame frame = first; frame < first + count && frame < left_out_.size(); ++frame)
            left_out_[frame] = true;
    }

private:
    bool is_hole(Frame frame) const {
        return frame >= bytes_.size() / kPageSize ||
               std::ranges::all_of(page(frame), [](std::byte b) { return b == std::byte{0}; });
    }
    bool left_out(Frame frame) const { return frame < left_out_.size() && left_out_[frame]; }
    std::span<const std::byte> page(Frame frame) const {
        return bytes_.subspan(std::size_t{frame} * kPageSize, kPageSize);
    }
    Image& image_;
    std::span<const std::byte> bytes_;
    std::vector<bool> loaded_, left_out_;
    UniqueFd file_;
    bool maps_ = false;
    std::size_t parts_ = 0;
};

struct MergedServer {
    World world;
    MachineState state;
    std::vector<std::byte> bytes;

    MergedServer() : world(server_permissions()) {
        auto image = world.image_of("serve");
        {
            const auto trial = Machine::clone(world.env, image, world.host, ResetStrategy::working_set);
            Stop stop;
            REQUIRE(invoke(world, *trial, 0, kReply, stop).size() == 30);
            image->working_set = trial->written_frames();
        }
        image = renumber(*image, {});
        state = to_state(*image, world.env, ProgramSpec{});
        bytes.assign(image->image->bytes().begin(), image->image->bytes().end());
    }
    std::shared_ptr<MachineImage> describe(std::shared_ptr<Image> memory) {
        std::vector<std::string> warnings;
        return from_state(state, std::move(memory), *world.policy, warnings);
    }
    // All of it there.
    std::shared_ptr<MachineImage> whole() {
        const auto memory = Image::create(state.frames);
        std::memcpy(memory->data(), bytes.data(), bytes.size());
        return describe(memory);
    }
    // Of a clone after an invocation with that seed.
    template <class End>
    std::shared_ptr<MachineImage> changed(const std::shared_ptr<MachineImage>& image, std::uint32_t seed, End&& end) {
        const auto machine = Machine::clone(world.env, image, world.host, ResetStrategy::working_set);
        Stop stop;
        REQUIRE(invoke(world, *machine, seed, kReply, stop).size() == 30);
        machine->connections().free(0);
        return end(*machine);
    }
    // What it says, or how it ended: what has been spoilt may be more than it bears.
    std::pair<StopKind, std::vector<std::uint64_t>> ask(Machine& machine, std::uint32_t seed = 0) {
        Stop stop;
        auto facts = invoke(world, machine, seed, kReply, stop);
        if (facts.size() > 23)
            facts[23] = facts[23] != 0; // the seconds that its alarm has left
        return {stop.kind, facts};
    }
};

} // namespace

TEST_CASE("changes merged into an image that is still filling are those of a copy") {
    MergedServer server;
    for (const ResetStrategy strategy : strategies()) {
        std::uint32_t served = 0;
        for (std::uint32_t seed = 0; seed < cases(50); ++seed) {
            CAPTURE(seed, static_cast<int>(strategy));
            const auto copy = server.changed(
                server.whole(), seed, [](Machine& machine) { return renumber(*std::move(machine).into_image(), {}); });
            clear_marks(*copy, *copy->image);
            const auto reference = Machine::clone(server.world.env, copy, server.world.host, strategy);
            const auto want = server.ask(*reference);
            if (want.first == StopKind::waiting)
                CHECK(want.second.at(0) == 2);
            served += want.first == StopKind::waiting;

            const auto memory = Image::create(server.state.frames);
            const auto loader = std::make_shared<Loader>(*memory, server.bytes);
            memory->set_loader(loader);
            const auto image = server.describe(memory);
            const bool shadow = server.world.env.kind.pvm_entry;
            const Frame hot_end = server.state.frames / 8 / Loader::kChunk * Loader::kChunk;
            for (Frame frame = 0; frame < hot_end; ++frame)
                memory->ensure(frame);
            CHECK(make_lazy(*image, *memory, shadow) > 100);
            loader->map();
            const auto merged =
                server.changed(image, seed, [&](Machine& machine) { return std::move(machine).merge_into(memory); });
            make_lazy(*merged, *memory, shadow, hot_end);
            Frame missing = 0;
            while (missing < server.state.frames && memory->loaded(missing))
                ++missing;
            CHECK(missing < server.state.frames);
            clear_marks(*merged, *memory);
            const auto machine = Machine::clone(server.world.env, merged, server.world.host, strategy);
            const auto other = Machine::clone(server.world.env, merged, server.world.host, strategy);
            REQUIRE(server.ask(*machine) == want);
            for (std::uint32_t next = 1; next < 8; ++next) {
                CAPTURE(next);
                for (Machine* m : {machine.get(), reference.get()}) {
                    m->reset();
                    REQUIRE(m->compare_with_image() == "");
                    m->prepare();
                }
                const auto got = server.ask(*machine, next); // a spoilt program may also not answer
                CHECK((got == want || got.second.empty()));
                const auto expected = server.ask(*reference, next);
                CAPTURE(static_cast<int>(got.first), got.second, static_cast<int>(expected.first), expected.second,
                        want.second);
                REQUIRE(got == expected);
            }
            CHECK(server.ask(*other) == want);
        }
        CHECK(served > cases(50) / 5);
    }
}
