// The migrations of this daemon's functions: at most one at a time for each, and those that are not confirmed yet.
#pragma once
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "src/remote/client.hpp"
#include "src/store/functions/moved.hpp"

namespace kvmserver::admin {

class Api;

enum class TakenOver {
    yes,
    refused, // and it never will
    unknown, // it may have
};
// Asks the daemon that a function has moved to. May be asked again.
TakenOver ask_to_take_over(remote::Client& there, const std::string& function, const store::Moved& moved);
// The same over a connection of its own.
TakenOver ask_to_take_over(const std::string& function, const store::Moved& moved);
remote::Server server_of(const std::string& url, const std::string& token, const std::string& ca_file);

class Migrations {
public:
    // With `asks` a thread asks again about those that the store says are not confirmed.
    Migrations(Api& api, bool asks);
    ~Migrations();
    Migrations(const Migrations&) = delete;
    Migrations& operator=(const Migrations&) = delete;

    // One function's while it lives. Throws store::Conflict if there is one already.
    class One {
    public:
        One(Migrations& all, const std::string& function);
        ~One();
        One(const One&) = delete;
        One& operator=(const One&) = delete;

    private:
        Migrations& all_;
        const std::string function_;
    };
    // One has become one that is not confirmed.
    void look();
    // The answer of the other daemon is known: changes the store and the daemon accordingly.
    void settle(const std::string& function, const store::Moved& moved, TakenOver answer);

private:
    void loop();
    bool ask_all(); // false: none is left to ask about

    Api& api_;
    std::mutex mutex_; // guards the following
    std::condition_variable changed_;
    std::set<std::string> running_;
    bool look_ = true, ending_ = false;
    std::thread thread_;
};

} // namespace kvmserver::admin
