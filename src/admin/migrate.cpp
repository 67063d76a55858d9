// /v1/functions/{name}/migrate: gives a function, with the states of its machines, to another daemon.
//
// Until Functions::move() has returned, it is this daemon's, and the version there is pending: it gets no requests.
// From then on it is the other's, which is asked until it has taken over (migrations.hpp).
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "src/admin/handlers.hpp"
#include "src/admin/migrations.hpp"
#include "src/admin/state_sender.hpp"
#include "src/daemon/control.hpp"
#include "src/daemon/function_settings.hpp"
#include "src/http/tls.hpp"
#include "src/ops/json.hpp"
#include "src/remote/upload.hpp"
#include "src/store/errors.hpp"
#include "src/store/functions/served.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::admin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMostPatience = 600'000; // ms

constexpr std::chrono::seconds kToTakeOver{2}; // while requests wait; then it is asked behind

double ms_between(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double, std::milli>(end - begin).count();
}

struct Destination {
    std::string url, token, ca_file;
    std::optional<std::string> forward;
    std::chrono::milliseconds patience{2000}; // for requests to end
};

Destination destination_in(Call& call) {
    Members members = call.members();
    Destination wanted;
    wanted.url = members.need_text("to");
    wanted.token = members.text("token").value_or("");
    wanted.ca_file = members.text("ca_file").value_or("");
    wanted.forward = members.text("forward");
    if (const auto wait = members.natural("wait_ms")) {
        if (*wait > kMostPatience)
            throw store::BadValue(fmt::format("\"wait_ms\": at most {}", kMostPatience));
        wanted.patience = std::chrono::milliseconds(*wait);
    }
    members.done();
    return wanted;
}

// The URL of the public listener, from the other daemon's API: the API's host unless it listens on one
// address only.
std::string public_listener(const std::string& api_url, const json& daemon) {
    const std::string address = daemon.at("address");
    const auto port = daemon.at("port").get<std::uint64_t>();
    if (port == 0)
        throw store::Conflict(fmt::format("its public listener is a Unix socket, {}: it needs a TCP port", address));
    std::string host = address.substr(0, address.rfind(':'));
    if (host.empty()) { // any address
        const std::size_t begin = api_url.find("://") + 3;
        const std::string rest = api_url.substr(begin, api_url.find('/', begin) - begin);
        host = rest.starts_with('[') ? rest.substr(0, rest.find(']') + 1) : rest.substr(0, rest.find(':'));
    }
    return fmt::format("{}://{}:{}", daemon.at("tls").get<bool>() ? "https" : "http", host, port);
}

// Throws UserError (unreachable).
void require_reachable(const std::string& url) {
    const store::ForwardAddress address = store::forward_address(url);
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const auto unreachable = [&](const char* why) {
        return tinykvm::UserError(tinykvm::ExitCode::unreachable,
                                  fmt::format("{}, its public listener, cannot be reached from here: {}: say with "
                                              "--forward http://HOST:PORT where it can",
                                              url, why));
    };
    if (const int error = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found))
        throw unreachable(::gai_strerror(error));
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
    const tinykvm::UniqueFd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval patience{5, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (!socket || ::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0)
        throw unreachable(std::strerror(errno));
}

class Departure {
public:
    Departure(Call& call, Destination wanted)
        : call_(call), control_(call.api.control()), name_(call.param("name")), wanted_(std::move(wanted)),
          there_(server_of(wanted_.url, wanted_.token, wanted_.ca_file)) {}

    json run() {
        look_here();
        look_there();
        send_snapshot();
        try {
            send_version();
            states_.emplace(control_, there_, StateSender::From{name_, version_.number, machines_}, moved_.version);
            states_->send_ahead(wanted_.patience);
            state_bytes_ahead_ = states_->bytes();
            leave();
        } catch (...) { // it stays here
            give_up();
            throw;
        }
        const auto give_up_at = Clock::now() + kToTakeOver;
        while ((taken_over_ = ask_to_take_over(there_, name_, moved_)) == TakenOver::unknown &&
               Clock::now() < give_up_at)
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        const auto end = Clock::now();
        try {
            call_.api.migrations().settle(name_, moved_, taken_over_);
        } catch (...) {
            call_.api.migrations().look(); // it is asked again
            throw;
        }
        if (taken_over_ == TakenOver::refused)
            throw store::Conflict(fmt::format("{} did not take {} over: it stays here", there_.shown(), name_));
        if (taken_over_ == TakenOver::unknown)
            call_.api.migrations().look();
        return {{"name", name_},
                {"version", version_.number},
                {"to", wanted_.url},
                {"forward", moved_.forward},
                {"version_there", moved_.version},
                {"confirmed", taken_over_ == TakenOver::yes},
                {"machines", machines_},
                {"snapshot_bytes", uploaded_.bytes},
                {"snapshot_bytes_sent", uploaded_.sent_bytes},
                {"state_bytes", states_->bytes()},
                {"state_bytes_ahead", state_bytes_ahead_},
                {"timing_ms",
                 {{"ahead", states_->longest_wait().count()},
                  {"held", ms_between(held_at_, end)},
                  {"save", ms_between(held_at_, saved_at_)},
                  {"send", ms_between(saved_at_, sent_at_)},
                  {"take_over", ms_between(sent_at_, end)}}}};
    }

private:
    void look_here() {
        const store::FunctionDetails now = store::Functions(call_.store()).describe(name_);
        etag_ = now.etag;
        if (now.moved)
            throw store::Conflict(fmt::format("{} was migrated to {} already", name_, now.moved->to));
        if (now.live.size() != 1)
            throw store::Conflict(now.live.empty() ? fmt::format("no version of {} is live", name_)
                                                   : fmt::format("{} versions of {} are live: give all requests to one",
                                                                 now.live.size(), name_));
        const auto function = store::Served(call_.store()).find(name_);
        if (!function || function->live.size() != 1)
            throw store::Conflict(fmt::format("{} is being changed: try again", name_));
        function_ = *function;
        version_ = function_.live.front();
        const daemon::FunctionSettings settings = daemon::function_settings(version_.manifest);
        if (settings.tcp)
            throw store::Conflict(
                fmt::format("{} serves connections, not HTTP requests: only requests can be forwarded "
                            "to where it would be",
                            name_));
        if (settings.kept && !settings.suspend)
            throw store::Conflict(fmt::format("what the machine of {} keeps cannot be saved: it needs "
                                              "[function.scale] suspend = true",
                                              name_));
        asked_secrets_ = settings.secrets;
        machines_ = control_.states(name_, version_.number);
    }

    void look_there() {
        const json info = there_.call("GET", "/v1/info");
        if (!info.contains("daemon"))
            throw store::Conflict(fmt::format("{} serves no functions", there_.shown()));
        const std::string other = info.at("version"), own = call_.api.options().version;
        if (other != own)
            throw store::Conflict(
                fmt::format("{} is kvmserver {}, and this one {}: a machine goes on in the same version "
                            "only",
                            there_.shown(), other, own));
        moved_.forward = wanted_.forward ? *wanted_.forward : public_listener(wanted_.url, info.at("daemon"));
        require_reachable(moved_.forward);
        if (!wanted_.ca_file.empty())
            http::client_context(wanted_.ca_file); // throws if it has none
        for (const std::string& secret : missing_secrets())
            throw store::Conflict(fmt::format("{} has no secret {} for all functions, for which {} asks: set it there",
                                              there_.shown(), secret, name_));
        moved_.to = wanted_.url;
        moved_.pending = true;
        moved_.token = wanted_.token;
        moved_.ca_file = wanted_.ca_file;
    }

    // Of the secrets for all functions, which are not sent.
    std::vector<std::string> missing_secrets() {
        std::vector<std::string> missing;
        std::erase_if(asked_secrets_, [&](const std::string& name) { return function_.secrets.contains(name); });
        if (asked_secrets_.empty())
            return missing;
        const json all = there_.call("GET", "/v1/secrets").at("secrets");
        for (const std::string& name : asked_secrets_)
            if (std::ranges::none_of(all, [&](const json& one) { return one.at("name") == name; }))
                missing.push_back(name);
        return missing;
    }

    // While it serves. What is in the store is sent as it is: the other daemon checks it.
    void send_snapshot() {
        const store::StoredSnapshot snapshot(call_.store(), version_.snapshot);
        const auto pieces = [&] {
            remote::Pieces all;
            for (const store::Piece& piece : snapshot.pieces())
                all.pieces.push_back({piece.chunk, piece.length, false});
            all.read = [&](std::uint64_t offset, std::span<std::byte> into) { snapshot.read(offset, into); };
            return all;
        };
        uploaded_ = remote::upload(there_, version_.snapshot, snapshot.size(), pieces, [](auto, auto) {});
    }

    std::string target(const std::string& more = "") const {
        return fmt::format("/v1/functions/{}{}", percent_encoded(name_), more);
    }

    void send_version() {
        const json arrives{{"version", version_.number}, {"env", function_.env}, {"secrets", function_.secrets}};
        const json made = there_.call("PUT", target(),
                                      {{"snapshot", uploaded_.snapshot},
                                       {"manifest", json::parse(version_.manifest)},
                                       {"routes", ops::routes_json(function_.routes)},
                                       {"arrives", arrives}});
        moved_.version = made.at("version");
    }

    // From here on requests wait.
    void leave() {
        held_at_ = Clock::now();
        control_.hold(name_, version_.number, wanted_.patience);
        held_ = true;
        saved_at_ = Clock::now();
        states_->send_rest();
        sent_at_ = Clock::now();
        call_.functions().move(name_, version_.number, moved_, etag_);
    }

    void give_up() noexcept {
        try {
            if (held_)
                control_.release(name_);
        } catch (const std::exception&) { // another version is live by now
        }
        try {
            if (moved_.version != 0)
                there_.call("DELETE", target(fmt::format("/versions/{}", moved_.version)));
        } catch (const std::exception&) { // it stays pending there, which harms nobody
        }
    }

    Call& call_;
    daemon::Control& control_;
    const std::string name_;
    const Destination wanted_;
    remote::Client there_;
    std::string etag_;
    store::ServedFunction function_;
    store::ServedVersion version_;
    std::vector<std::string> asked_secrets_;
    unsigned machines_ = 0; // with states
    store::Moved moved_;
    remote::Uploaded uploaded_;
    std::optional<StateSender> states_;
    std::uint64_t state_bytes_ahead_ = 0; // of those sent while it served
    bool held_ = false;
    TakenOver taken_over_ = TakenOver::unknown;
    Clock::time_point held_at_, saved_at_, sent_at_;
};

} // namespace

void migrate(Call& call) {
    Destination to = destination_in(call);
    const Migrations::One one(call.api.migrations(), call.param("name"));
    try {
        call.reply(200, Departure(call, std::move(to)).run());
    } catch (const remote::Problem& problem) {
        throw tinykvm::UserError(problem.code(), fmt::format("the other daemon says: {}", problem.what()));
    } catch (const json::exception&) {
        throw tinykvm::UserError(tinykvm::ExitCode::failure,
                                 "the other daemon does not answer as the API of kvmserver");
    }
}

} // namespace kvmserver::admin
