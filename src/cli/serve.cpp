// kvmserver serve: the daemon, in the foreground.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cerrno>
#include <cstring>

#include "src/cli/command.hpp"
#include "src/cli/paths.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/daemon/daemon.hpp"
#include "src/runner/listeners.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr OptionSpec kServeOptions[] = {
    {.name = "listen", .kind = Kind::text, .group = "Options", .value = "ADDR", .fallback = ":8080", .help = "where clients connect"},
    {.name = "store", .kind = Kind::text, .group = "Options", .value = "DIR", .help = "the store (KVMSERVER_STORE)"},
    {.name = "threads", .letter = 't', .kind = Kind::text, .group = "Options", .value = "N", .fallback = "0",
     .help = "request machines of a function at most; 0 = number of CPUs"},
    {.name = "idle", .kind = Kind::text, .group = "Options", .value = "SECONDS", .fallback = "60",
     .help = "end the process of a function that nobody asks"},
    {.name = "max-vms", .kind = Kind::text, .group = "Options", .value = "N", .fallback = "0",
     .help = "request machines of all functions together; 0 = no limit"},
    {.name = "access-log", .kind = Kind::text, .group = "Options", .value = "FILE", .help = "a JSON object a request; - is stdout"},
    {.name = "tls-certificate", .kind = Kind::text, .group = "Options", .value = "FILE", .help = "PEM chain: serve TLS"},
    {.name = "tls-key", .kind = Kind::text, .group = "Options", .value = "FILE", .help = "PEM key"},
};

std::string text_of(const Invocation& invocation, std::string_view name, std::string fallback = "") {
    const auto at = invocation.settings.find(name);
    return at == invocation.settings.end() ? fallback : at->second.values.back();
}

template <class Number>
Number number_of(const Invocation& invocation, std::string_view name, Number fallback, Number most) {
    const std::string text = text_of(invocation, name);
    if (text.empty())
        return fallback;
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !(value >= 0) || value > most)
        throw UserError(ExitCode::usage, fmt::format("--{}: '{}' is no number from 0 to {}", name, text, most));
    return value;
}

tinykvm::UniqueFd listen_on(const std::string& text) {
    const SocketAddress address = parse_listen_address(text);
    tinykvm::UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (fd)
        ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (!fd || ::bind(fd.get(), address.get(), address.bytes) < 0 || ::listen(fd.get(), 1024) < 0) {
        const int error = errno;
        throw UserError(error == EADDRINUSE ? ExitCode::conflict : error == EACCES ? ExitCode::not_permitted : ExitCode::failure,
                        fmt::format("cannot listen on {}: {}{}", text, std::strerror(error),
                                    error == EADDRINUSE ? "; stop the other server or choose another address with --listen" : ""));
    }
    return fd;
}

int serve(const Invocation& invocation, Context& context) {
    if (!invocation.operands.empty())
        throw UserError(ExitCode::usage, fmt::format("serve takes no '{}'; see kvmserver serve --help", invocation.operands.front()));
    daemon::ServeOptions options;
    options.store = platform::store_path(invocation, context);
    options.certificate = text_of(invocation, "tls-certificate");
    options.key = text_of(invocation, "tls-key");
    if (options.certificate.empty() != options.key.empty())
        throw UserError(ExitCode::usage, "--tls-certificate and --tls-key go together; give both");
    const unsigned machines = number_of<unsigned>(invocation, "threads", 0, 1024);
    options.machines = machines == 0 ? context.cpus : machines;
    options.idle_seconds = number_of<double>(invocation, "idle", 60, 1e9);
    options.max_machines = number_of<std::uint64_t>(invocation, "max-vms", 0, 1'000'000);
    options.threads = std::max(1u, context.cpus / 2);
    options.access_log = text_of(invocation, "access-log");
    if (!options.access_log.empty() && options.access_log != "-")
        options.access_log = absolute_path(context.folder, options.access_log);
    for (std::string* const file : {&options.certificate, &options.key})
        if (!file->empty())
            *file = absolute_path(context.folder, *file);
    options.listen = [address = text_of(invocation, "listen", ":8080")] { return listen_on(address); };
    return daemon::serve(std::move(options));
}

} // namespace

Command serve_command() {
    return {.name = "serve",
            .synopsis = "",
            .summary = "serve all functions of a store, each by its routes",
            .operands = Operands::ours,
            .options = {std::begin(kServeOptions), std::end(kServeOptions)},
            .action = serve};
}

} // namespace kvmserver::cli
