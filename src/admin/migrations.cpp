#include "src/admin/migrations.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>

#include "src/admin/api.hpp"
#include "src/admin/request.hpp"
#include "src/daemon/control.hpp"
#include "src/store/errors.hpp"
#include "src/store/functions/functions.hpp"

namespace kvmserver::admin {

namespace {
constexpr std::chrono::milliseconds kAskEvery{500};
constexpr double kPatience = 10; // seconds
} // namespace

remote::Server server_of(const std::string& url, const std::string& token, const std::string& ca_file) {
    remote::Server server;
    server.url = url;
    server.token = token;
    server.ca_file = ca_file;
    server.timeout_seconds = kPatience;
    return server;
}

TakenOver ask_to_take_over(const std::string& function, const store::Moved& moved) {
    try {
        remote::Client there(server_of(moved.to, moved.token, moved.ca_file));
        return ask_to_take_over(there, function, moved);
    } catch (const std::exception&) {
        return TakenOver::unknown;
    }
}

TakenOver ask_to_take_over(remote::Client& there, const std::string& function, const store::Moved& moved) {
    try {
        there.call("POST",
                   fmt::format("/v1/functions/{}/versions/{}/take-over", percent_encoded(function), moved.version));
        return TakenOver::yes;
    } catch (const remote::Problem& problem) {
        // It does not have the version, or gave it up. Anything else, such as a token that was revoked, may end.
        const bool never = problem.name() == "not-found" || problem.name() == "conflict";
        return never ? TakenOver::refused : TakenOver::unknown;
    } catch (const std::exception&) {
        return TakenOver::unknown;
    }
}

Migrations::Migrations(Api& api, bool asks) : api_(api) {
    if (asks)
        thread_ = std::thread([this] { loop(); });
}

Migrations::~Migrations() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable())
        thread_.join();
}

Migrations::One::One(Migrations& all, const std::string& function) : all_(all), function_(function) {
    const std::lock_guard lock(all_.mutex_);
    if (!all_.running_.insert(function).second)
        throw store::Conflict(fmt::format("{} is being migrated already", function));
}

Migrations::One::~One() {
    const std::lock_guard lock(all_.mutex_);
    all_.running_.erase(function_);
}

void Migrations::look() {
    const std::lock_guard lock(mutex_);
    look_ = true;
    changed_.notify_all();
}

void Migrations::settle(const std::string& function, const store::Moved& moved, TakenOver answer) {
    store::Functions functions(api_.store());
    store::Moved now = moved;
    now.pending = answer != TakenOver::yes;
    api_.control().forward(function, now); // first: requests wait
    if (answer == TakenOver::yes)
        functions.move_is_over(function);
    else if (answer == TakenOver::refused)
        functions.stay(function);
    api_.changed();
    api_.control().release(function);
}

bool Migrations::ask_all() {
    bool left = false;
    if (!api_.source().get())
        return false;
    for (const auto& [function, moved] : store::Functions(api_.store()).pending_moves()) {
        {
            const std::lock_guard lock(mutex_);
            if (ending_)
                return false;
            left |= running_.contains(function);
            if (running_.contains(function)) // it asks itself
                continue;
        }
        const TakenOver answer = ask_to_take_over(function, moved);
        if (answer == TakenOver::unknown)
            left = true;
        else
            settle(function, moved, answer);
    }
    return left;
}

void Migrations::loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return ending_ || look_; });
        if (ending_)
            return;
        look_ = false;
        lock.unlock();
        bool left = true;
        try {
            left = ask_all();
        } catch (const std::exception&) { // the store is busy, for example
        }
        lock.lock();
        if (left && !changed_.wait_for(lock, kAskEvery, [this] { return ending_; }))
            look_ = true;
    }
}

} // namespace kvmserver::admin
