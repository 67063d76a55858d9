// Publishes the program's state for the host's part of /proc/self (linux/synthetic_text.cpp).
#include "tinykvm/guest/calls.hpp"
#include "tinykvm/guest/signal.hpp"

namespace gk {

void publish_self() {
    abi::SelfState& self = gk_shared_page.self;
    const Credentials& ids = current->ids;
    self.umask = creation_mask();
    self.threads = live_threads;
    const auto put = [](u32(&to)[4], const Ids& from) {
        to[0] = from.real, to[1] = from.effective, to[2] = from.saved, to[3] = from.file;
    };
    put(self.uid, ids.user);
    put(self.gid, ids.group);
    constexpr u32 kMax = sizeof(self.groups) / sizeof(self.groups[0]);
    self.group_count = ids.groups ? ids.groups->count : 0;
    for (u32 i = 0; i < self.group_count && i < kMax; ++i)
        self.groups[i] = ids.groups->ids[i];
    self.no_new_privileges = ids.no_new_privileges;
    self.inheritable = ids.inheritable;
    self.permitted = ids.permitted;
    self.effective = ids.effective;
    self.bounding = ids.bounding;
    self.ambient = ids.ambient;
    self.pending = current->sig_pending.bits;
    self.shared_pending = process_pending.bits;
    self.blocked = current->sig_mask;
    self.ignored = self.caught = 0;
    constexpr u64 kDefault = 0, kIgnore = 1;
    for (i32 signal = 1; signal <= 64; ++signal)
        if (const u64 handler = actions[signal].handler; handler == kIgnore)
            self.ignored |= bit(signal);
        else if (handler != kDefault)
            self.caught |= bit(signal);
    self.cpu_ns = cpu_ns();
    publish_group(self);
    gk_shared_page.parent = own_parent();
}

} // namespace gk
