#include "src/admin/state_sender.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <span>
#include <utility>

#include "src/admin/request.hpp"
#include "src/common/digest.hpp"
#include "src/store/errors.hpp"
#include "src/store/snapshots/saved_state.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/io_buffer.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/same_file.hpp"

namespace kvmserver::admin {

namespace {

constexpr const char* kRead = "read the state of a machine";
// Each time less has changed since the last: it takes less long to send. Few bytes are sent while requests wait.
constexpr unsigned kMostRounds = 3;
constexpr std::uint64_t kFew = 4u << 20;

std::uint64_t size_of(int file) {
    struct stat facts {};
    if (::fstat(file, &facts) != 0)
        tinykvm::throw_errno(kRead);
    return static_cast<std::uint64_t>(facts.st_size);
}

} // namespace

void StateSender::send_ahead(std::chrono::milliseconds patience) {
    std::uint64_t last = 0;
    for (unsigned round = 1; round <= kMostRounds; ++round) {
        const std::uint64_t before = bytes_;
        const auto began = std::chrono::steady_clock::now();
        auto checkpoints = control_.checkpoint(from_.function, from_.version, patience);
        longest_ = std::max<decltype(longest_)>(longest_, std::chrono::steady_clock::now() - began);
        for (daemon::Checkpoint& each : checkpoints)
            if (const auto bytes = each.wait())
                send(each.machine, std::move(each.file), *bytes, Last::no);
            else // its process may write the file anew
                sent_.erase(each.machine);
        for (unsigned machine = 1; round == 1 && machine <= from_.machines; ++machine)
            if (std::ranges::none_of(checkpoints, [&](const auto& each) { return each.machine == machine; }))
                send_suspended(machine);
        const std::uint64_t now = bytes_ - before;
        if (checkpoints.empty() || now < kFew || (round > 1 && now > last / 2))
            return;
        last = now;
    }
}

void StateSender::send_suspended(unsigned machine) {
    try {
        tinykvm::UniqueFd file = control_.saved_state(from_.function, from_.version, machine).open();
        if (!file)
            return;
        const std::uint64_t bytes = size_of(file.get());
        send(machine, std::move(file), bytes, Last::no);
    } catch (const store::Conflict&) { // a process has it
    }
}

void StateSender::send_rest() {
    for (unsigned machine = 1; machine <= from_.machines; ++machine) {
        const store::SavedState state = control_.saved_state(from_.function, from_.version, machine);
        tinykvm::UniqueFd file = state.open();
        if (!file)
            continue; // it has never been saved: it begins from its snapshot, there as well
        const std::uint64_t bytes = size_of(file.get());
        send(machine, std::move(file), bytes, Last::yes);
    }
}

void StateSender::send(unsigned machine, tinykvm::UniqueFd file, std::uint64_t bytes, Last last) {
    Sent& sent = sent_[machine];
    const bool goes_on = sent.file && tinykvm::same_file(sent.file.get(), file.get()) && sent.bytes <= bytes;
    const std::uint64_t from = goes_on ? sent.bytes : 0;
    const auto read = [&](std::uint64_t at, std::span<std::byte> into) {
        const auto part = into.first(std::min<std::uint64_t>(into.size(), bytes - at));
        if (tinykvm::read_at(file.get(), at, part, kRead) != part.size())
            throw tinykvm::HostError(EIO, kRead);
        return part.size();
    };
    Sha256 sum;
    tinykvm::IoBuffer buffer(1u << 20);
    for (std::uint64_t at = from; at < bytes;) {
        const std::size_t count = read(at, buffer);
        sum.update(std::span(buffer.data(), count));
        at += count;
    }
    std::uint64_t at = from;
    const remote::Reply reply =
        there_.ask({.method = "PUT",
                    .target = fmt::format("/v1/functions/{}/versions/{}/state?machine={}&from={}&more={}&sha256={}",
                                          percent_encoded(from_.function), version_there_, machine, from,
                                          last == Last::no, sum.finish().hex()),
                    .source =
                        [&](char* into, std::size_t most) {
                            const std::size_t count = read(at, std::as_writable_bytes(std::span(into, most)));
                            at += count;
                            return count;
                        },
                    .body_bytes = bytes - from,
                    .transfer = true});
    if (reply.status >= 400)
        remote::throw_problem(reply, there_.shown());
    bytes_ += bytes - from;
    sent = {std::move(file), bytes};
}

} // namespace kvmserver::admin
