// A snapshot as plain values and bytes, for tests that tamper with it.
#pragma once
#include "tests/kvm/world.hpp"

namespace tinykvm::test {

struct Snapshot {
    World world;
    MachineState state;
    std::vector<std::byte> bytes;

    Snapshot() : world(server_permissions()) {
        auto image = world.image_of("serve");
        state = to_state(*image, world.env, ProgramSpec{});
        bytes.assign(image->image->bytes().begin(), image->image->bytes().end());
    }
    std::shared_ptr<Image> memory() const {
        auto image = Image::create(static_cast<std::uint32_t>(bytes.size() / kPageSize));
        std::memcpy(image->data(), bytes.data(), bytes.size());
        return image;
    }
    std::shared_ptr<MachineImage> restore(const MachineState& s, std::shared_ptr<Image> from = nullptr) {
        std::vector<std::string> warnings;
        if (!from)
            from = memory();
        auto image = from_state(s, from, *world.policy, warnings);
        make_lazy(*image, *from, world.env.kind.pvm_entry);
        clear_marks(*image, *from);
        return image;
    }
    // As a runner would use it; whatever happens, it comes back.
    void use(std::shared_ptr<const MachineImage> image, ResetStrategy strategy) {
        const auto machine = Machine::clone(world.env, image, world.host, strategy);
        for (int i = 0; i < 2; ++i) {
            world.host.allow(0.1);
            const std::uint32_t request[2] = {0, 0};
            (void)machine->connections().offer(0, {}, {});
            ConnView view;
            std::vector<iovec> room;
            if (machine->connections().view(0, view) && machine->connections().rx_ranges(0, view, room) &&
                !room.empty() && room[0].iov_len >= sizeof(request)) {
                std::memcpy(room[0].iov_base, request, sizeof(request));
                machine->connections().received(0, view, sizeof(request));
            }
            {
                const QuietStreams quiet;
                (void)machine->run();
            }
            (void)machine->wait_handles();
            machine->reset();
            (void)machine->compare_with_image();
            machine->prepare();
        }
    }
    std::uint64_t& word(Image& image, std::uint64_t at) const {
        return *reinterpret_cast<std::uint64_t*>(image.data() + at);
    }
    // Where the entry for an address is, at a level (0: the leaf).
    std::uint64_t entry_at(Image& image, std::uint64_t address, int level) const {
        std::uint64_t table = state.page_table_root;
        for (int l = 3; l > level; --l)
            table = word(image, table + ((address >> (12 + 9 * l)) & 511) * 8) & pte::kAddress;
        return table + ((address >> (12 + 9 * level)) & 511) * 8;
    }
};

inline ResetStrategy any_strategy(unsigned seed) {
    return kvm::host_kind(kvm_device()).dirty_bits && seed % 2 ? ResetStrategy::dirty_bits : ResetStrategy::working_set;
}

// Refusals are UserErrors that name a bad snapshot; nothing else may come out.
template <class Fn>
void refused(const char* what, Fn&& fn) {
    INFO(what);
    try {
        fn();
        FAIL_CHECK("was not refused");
    } catch (const UserError& error) {
        CHECK(error.code() == ExitCode::bad_snapshot);
    }
}

} // namespace tinykvm::test
