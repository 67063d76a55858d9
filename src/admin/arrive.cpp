// /v1/functions/{name}/versions/{version}/state and take-over: a function that comes from another daemon.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "src/admin/arrive.hpp"
#include "src/admin/handlers.hpp"
#include "src/daemon/control.hpp"
#include "src/store/errors.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/io_buffer.hpp"
#include "tinykvm/base/write.hpp"

namespace kvmserver::admin {
namespace {

void require_pending(Call& call, const std::string& name, std::uint64_t version) {
    const store::VersionInfo info = store::Functions(call.store()).version(name, version);
    if (info.state != store::VersionState::pending)
        throw store::Conflict(
            fmt::format("{} v{} is {}: only one that is on its way gets a state", name, version, name_of(info.state)));
}

// Returns how many bytes it was.
std::uint64_t receive(Call& call, int file, const Digest& wanted) {
    tinykvm::IoBuffer buffer(256u << 10);
    Sha256 sum;
    constexpr std::uint64_t kBeginWriting = 4u << 20;
    std::uint64_t bytes = 0, begun = 0;
    while (const std::size_t count = call.exchange.read(buffer)) {
        const std::span part(buffer.data(), count);
        sum.update(part);
        tinykvm::write_all(file, part, "the state of a machine");
        bytes += count;
        if (bytes - begun >= kBeginWriting) { // so that the disk is at work meanwhile
            ::sync_file_range(file, static_cast<off64_t>(begun), static_cast<off64_t>(bytes - begun),
                              SYNC_FILE_RANGE_WRITE);
            begun = bytes;
        }
    }
    if (sum.finish() != wanted)
        throw Refused(422, "digest-mismatch", "the state that arrived has another SHA-256", "send it again");
    if (::fdatasync(file) != 0)
        tinykvm::throw_errno("sync the state of a machine");
    return bytes;
}

} // namespace

void put_version_state(Call& call) {
    const std::string& name = call.param("name");
    const std::uint64_t version = call.version_param();
    const auto machine = call.query_number("machine").value_or(1);
    const auto sha256 = call.query("sha256");
    if (!sha256)
        throw store::BadValue("the query's sha256 is missing");
    const Digest wanted = digest_from(*sha256, "sha256");
    const std::string length(call.request.header("Content-Length"));
    if (length.empty())
        throw store::BadValue("the header Content-Length is missing");
    require_pending(call, name, version);
    call.api.uploads().require_room(call.store(), call.who, number_from(length, "Content-Length"));
    if (machine > UINT32_MAX)
        throw store::BadValue("the query's machine is too large");
    store::SavedState state = call.api.control().saved_state(name, version, static_cast<unsigned>(machine));
    const tinykvm::UniqueFd file = state.begin();
    std::uint64_t bytes = 0;
    try {
        bytes = receive(call, file.get(), wanted);
        state.commit();
    } catch (...) {
        state.drop();
        throw;
    }
    call.reply(200, {{"name", name}, {"version", version}, {"machine", machine}, {"bytes", bytes}});
}

void take_over(Call& call) {
    call.no_members();
    const std::string& name = call.param("name");
    const std::uint64_t version = call.version_param();
    daemon::Control& control = call.api.control(); // nobody would serve it
    call.functions().take_over(name, version);
    call.api.changed();
    if (control.states(name, version) != 0)
        control.resume(name); // so that the first request need not wait
    call.reply(200, {{"name", name}, {"version", version}});
}

void forget_arrived(Call& call, const std::string& name, std::uint64_t version) {
    daemon::Control* const control = call.api.options().control;
    if (!control || store::Functions(call.store()).version(name, version).state != store::VersionState::pending)
        return;
    for (unsigned machine = control->states(name, version); machine > 0; --machine)
        control->saved_state(name, version, machine).forget();
}

} // namespace kvmserver::admin
