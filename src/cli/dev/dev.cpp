// kvmserver dev: serves the program of a folder, and with --watch rebuilds it at every save.
#include "src/cli/dev/dev.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>

#include "src/cli/dev/server.hpp"
#include "src/cli/events/json_events.hpp"
#include "src/cli/options/config_file.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/source.hpp"
#include "src/ops/reference.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using namespace dev;
using namespace std::chrono_literals;
using tinykvm::ExitCode;
using tinykvm::UserError;
namespace fs = std::filesystem;

// Editors save in several steps, and may save several files.
constexpr auto kSettle = 20ms;      // after a file was completed
constexpr auto kSettleOpen = 50ms;  // after a step that another one follows
constexpr auto kMaxSettling = 1s;   // do not wait longer for files that keep changing
constexpr auto kHandover = 250ms;   // a retired server has stopped accepting long before
constexpr auto kMaxRetiring = 40s;  // longer than it gives its clients
constexpr auto kLastPatience = 2s;  // at the end
constexpr unsigned kSuspicious = 3; // consecutive builds that changed watched files

constexpr OptionSpec kDevOptions[] = {
    {.name = "watch", .group = "Options", .help = "build and serve anew when a file changes"},
    {.name = "port",
     .kind = Kind::count,
     .group = "Options",
     .value = "N",
     .fallback = "3000",
     .help = "listen on 127.0.0.1:N; 0: any free port"},
    {.name = "jail",
     .kind = Kind::text,
     .group = "Options",
     .value = "auto|strict|off",
     .fallback = "auto",
     .help = "walls around the program's process (docs/SECURITY.md)"},
    {.name = "verbose", .letter = 'v', .group = "Options", .help = "say what happens, and each refusal"},
    kStrict,
    platform::kJsonEvents,
};

tinykvm::UniqueFd listen_on(std::uint16_t& port) {
    tinykvm::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd)
        tinykvm::throw_errno("socket");
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(fd.get(), any, bytes) < 0 || ::listen(fd.get(), SOMAXCONN) < 0) {
        const bool used = errno == EADDRINUSE;
        throw UserError(used              ? ExitCode::conflict
                        : errno == EACCES ? ExitCode::not_permitted
                                          : ExitCode::failure,
                        fmt::format("cannot listen on 127.0.0.1:{}: {}{}", port, std::strerror(errno),
                                    used ? "; choose another with --port" : ""));
    }
    ::getsockname(fd.get(), any, &bytes);
    port = ntohs(address.sin_port);
    return fd;
}

class Session {
public:
    Session(const Invocation& invocation, Context& context)
        : context_(context), operand_(invocation.operands.empty() ? "." : invocation.operands.front()),
          watching_(platform::flag(invocation, "watch")), verbose_(platform::flag(invocation, "verbose")),
          invocation_(invocation), jail_(jail::text_of(platform::jail_mode(invocation, "jail"))) {
        const std::string port = platform::text(invocation, "port").value_or("3000");
        const std::uint64_t number = ops::whole_number(port, "port");
        if (number > 65535)
            throw UserError(ExitCode::usage, fmt::format("--port={}: the highest port is 65535", port));
        port_ = static_cast<std::uint16_t>(number);
        read();
    }

    int run() {
        listening_ = listen_on(port_);
        Events events(context_.out);
        events_ = &events;
        int code = 0;
        try {
            while (turn()) {
            }
            code = code_;
        } catch (const Stopped&) {
            say("stopping");
            wind_up();
        }
        current_.reset();
        retired_.clear();
        return code;
    }

private:
    struct Retired {
        std::unique_ptr<Server> server;
        Clock::time_point end; // when it is killed
    };

    void say(const std::string& what) { context_.err << "kvmserver: " << what << std::endl; }

    void read() {
        auto source = platform::find_source(operand_, context_);
        if (!source.manifest)
            throw UserError(ExitCode::usage,
                            fmt::format("{}: dev serves a folder with a kvmserver.toml; a snapshot is served "
                                        "by kvmserver snaprun",
                                        operand_));
        manifest_ = std::move(*source.manifest);
    }

    // Serves the current state and waits for a change. Returns false when it is over.
    bool turn() {
        std::string why;
        ExitCode code = ExitCode::failure;
        try {
            read_and_look();
            platform::report_warnings(manifest_, invocation_, context_);
            serve();
        } catch (const NotServed& error) {
            why = error.what();
            code = error.code();
        } catch (const UserError& error) { // the manifest is invalid
            why = error.what();
            code = error.code();
        }
        if (!why.empty()) {
            const char* const then = current_    ? "; the previous version keeps serving"
                                     : watching_ ? "; waiting for a change"
                                                 : "";
            if (context_.events && (watching_ || current_))
                context_.events->emit({{"event", "failed"},
                                       {"message", why},
                                       {"exit_code", static_cast<int>(code)},
                                       {"serving", current_ != nullptr}});
            else
                say(why + then);
            code_ = static_cast<int>(code);
            if (!watching_)
                return false;
        }
        return changed_while_building() || wait_for_change();
    }

    // Looks at the files before they are used, so that no later change is missed.
    void read_and_look() {
        if (!watching_)
            return read();
        if (!watch_)
            watch_ = std::make_unique<Watch>(manifest_);
        events_->set_watch(watch_.get());
        events_->taken();
        built_ = watch_->look();
        const auto manifest = built_.find(manifest_.file);
        const Mark mark = manifest == built_.end() ? Mark{} : manifest->second;
        const std::string before = manifest_.json;
        read();
        if (manifest_.json == before) // it watches the same
            return;
        auto next = std::make_unique<Watch>(manifest_);
        events_->set_watch(next.get());
        watch_ = std::move(next);
        built_ = watch_->look();
        built_[manifest_.file] = mark;
    }

    void serve() {
        const Server::Plan plan{
            .listening = listening_.get(), .jail = jail_, .verbose = verbose_, .told = context_.events};
        auto next = std::make_unique<Server>(*events_, manifest_, plan);
        if (current_) {
            if (keeps_)
                say("what the previous version kept is lost");
            current_->retire();
            retired_.push_back({std::move(current_), Clock::now() + kMaxRetiring});
            const auto end = Clock::now() + kHandover;
            while (!retired_.back().server->drained() && Clock::now() < end)
                events_->step(end);
        }
        if (manifest_.kept && !keeps_)
            say(fmt::format("it keeps what requests change until the next build ([function] ephemeral = false){}",
                            manifest_.kept_machines > 1
                                ? fmt::format("; here in one machine, when deployed in {}", manifest_.kept_machines)
                                : ""));
        keeps_ = manifest_.kept;
        if (manifest_.has_storage && !manifest_.storage)
            say("its storage is a function that is deployed by itself ([function.storage] function), and is not "
                "reached from here");
        current_ = std::move(next);
        const std::string url = fmt::format("{}://127.0.0.1:{}",
                                            manifest_.is_http()           ? "http"
                                            : manifest_.protocol == "tcp" ? "tcp"
                                                                          : "https",
                                            port_);
        if (context_.events)
            context_.events->emit({{"event", "ready"}, {"url", url}});
        else
            context_.out << "Ready " << url << std::endl;
    }

    // Returns false if the server ended by itself and nothing is watched.
    bool wait_for_change() {
        for (;;) {
            std::erase_if(retired_, [](Retired& each) { return each.server->ended() || Clock::now() >= each.end; });
            events_->step(retired_.empty() ? Clock::time_point::max() : retired_.front().end);
            if (watching_ && changed_since())
                return true;
            if (!current_ || !current_->ended())
                continue;
            code_ = *current_->ended();
            say(fmt::format("the server ended with status {}{}", code_, watching_ ? "; waiting for a change" : ""));
            current_.reset();
            if (!watching_)
                return false;
        }
    }

    // Whether files changed during the build: by a save, or by the build itself.
    bool changed_while_building() {
        if (!watching_ || !different())
            return false;
        if (++during_builds_ == kSuspicious)
            say("it changes during every build: if the build makes it, say in [function.build] watch what "
                "the sources are");
        return true;
    }

    bool changed_since() {
        if (!events_->changed())
            return false;
        const auto most = events_->changed_at() + kMaxSettling;
        const auto settled_at = [&] { return events_->changed_at() + (events_->completed() ? kSettle : kSettleOpen); };
        while (settled_at() > Clock::now() && Clock::now() < most)
            events_->step(settled_at());
        events_->taken();
        during_builds_ = 0;
        return different();
    }

    bool different() {
        const auto changed = differing(built_, watch_->look());
        if (!changed.empty())
            say(fmt::format("{} changed", names(changed)));
        return !changed.empty();
    }

    std::string names(const std::vector<fs::path>& files) const {
        constexpr std::size_t kShownPaths = 3;
        std::string text;
        for (std::size_t i = 0; i < std::min(files.size(), kShownPaths); ++i)
            text += (i ? ", " : "") + files[i].lexically_relative(manifest_.folder).string();
        return files.size() > kShownPaths ? fmt::format("{} and {} more", text, files.size() - kShownPaths) : text;
    }

    // Lets current clients finish. A second signal does not wait for them.
    void wind_up() {
        const auto end = Clock::now() + kLastPatience;
        try {
            if (current_) {
                current_->retire();
                retired_.push_back({std::move(current_), end});
            }
            for (Retired& each : retired_)
                while (!each.server->ended() && Clock::now() < end)
                    events_->step(end);
        } catch (const Stopped&) {
        }
    }

    Context& context_;
    std::string operand_;
    bool watching_, verbose_;
    const Invocation& invocation_;
    bool keeps_ = false; // what is served keeps its state
    std::string jail_;
    std::uint16_t port_ = 0;
    platform::Manifest manifest_;
    tinykvm::UniqueFd listening_;
    Events* events_ = nullptr; // while run() runs
    std::unique_ptr<Watch> watch_;
    Marks built_; // the sources as of the last build
    unsigned during_builds_ = 0;
    std::unique_ptr<Server> current_;
    std::list<Retired> retired_;
    int code_ = 0;
};

int run_dev(const Invocation& invocation, Context& context) {
    platform::expect_operands(invocation, "dev", "[DIR]", 0, 1);
    return Session(invocation, context).run();
}

} // namespace

Command dev_command() {
    return {.name = "dev",
            .synopsis = "[DIR]",
            .summary = "serve a folder's program while you work on it",
            .operands = Operands::ours,
            .options = {std::begin(kDevOptions), std::end(kDevOptions)},
            .action = run_dev,
            .has_events = true};
}

} // namespace kvmserver::cli
