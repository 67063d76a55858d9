// /v1/functions/{name}/versions/{version}/state and take-over: a function that comes from another daemon.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "src/admin/arrive.hpp"
#include "src/admin/arriving_states.hpp"
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

// Adds what arrives to the file, and returns once it is on the disk.
void receive(Call& call, ArrivingState& into, const Digest& wanted) {
    const int file = into.file.get();
    tinykvm::IoBuffer buffer(256u << 10);
    Sha256 sum;
    constexpr std::uint64_t kBeginWriting = 4u << 20;
    std::uint64_t bytes = into.bytes, begun = bytes;
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
    into.bytes = bytes;
}

// So that the machine can go on soon after the last part. Without that a process begins once there is a request.
void prepare(Call& call, const ArrivingStates::Of& of, ArrivingState& state, bool more) {
    try {
        if (state.prepared && !state.prepared->process->state_grew(state.bytes, more))
            state.prepared.reset();
        else if (!state.prepared && more)
            state.prepared =
                call.api.control().prepare(of.function, of.version, of.machine, state.file.get(), state.bytes);
    } catch (const std::exception&) {
        state.prepared.reset();
    }
}

// The one that goes on at byte `from`.
ArrivingState state_from(Call& call, const ArrivingStates::Of& of, std::uint64_t from) {
    auto kept = call.api.arriving_states().take(of);
    if (from == 0) {
        kept.reset();
        store::SavedState state = call.api.control().saved_state(of.function, of.version, of.machine);
        tinykvm::UniqueFd file = state.begin();
        return {std::move(state), std::move(file), 0, nullptr};
    }
    if (kept && kept->bytes == from)
        return *std::move(kept);
    const std::uint64_t bytes = kept ? kept->bytes : 0;
    if (kept)
        kept->state.drop();
    throw store::Conflict(fmt::format("of the state of machine {} {} bytes have arrived, not {}: send it from its "
                                      "beginning",
                                      of.machine, bytes, from));
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
    const bool more = call.query_flag("more");
    const ArrivingStates::Of of{name, version, static_cast<unsigned>(machine)};
    ArrivingState arriving = state_from(call, of, call.query_number("from").value_or(0));
    try {
        receive(call, arriving, wanted);
        if (!more)
            arriving.state.commit();
    } catch (...) {
        arriving.state.drop();
        throw;
    }
    const std::uint64_t bytes = arriving.bytes;
    prepare(call, of, arriving, more);
    if (more)
        call.api.arriving_states().keep(of, std::move(arriving));
    else if (arriving.prepared)
        call.api.control().set_prepared(name, version, of.machine, std::move(arriving.prepared));
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
    for (unsigned machine = control->states(name, version); machine > 0; --machine) {
        call.api.arriving_states().take({name, version, machine});
        control->set_prepared(name, version, machine, nullptr);
        control->saved_state(name, version, machine).forget();
    }
}

} // namespace kvmserver::admin
