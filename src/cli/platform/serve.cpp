// kvmserver serve: runs the daemon in the foreground.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "src/admin/address.hpp"
#include "src/admin/listener.hpp"
#include "src/cli/command.hpp"
#include "src/cli/doctor/probe_line.hpp"
#include "src/cli/paths.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/serve_cluster.hpp"
#include "src/cli/version.hpp"
#include "src/daemon/daemon.hpp"
#include "src/daemon/function_process.hpp"
#include "src/event_loop/listeners.hpp"
#include "src/snapshot/folder_cache.hpp"
#include "src/store/snapshots/gc.hpp"
#include "src/tracing/collector.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr OptionSpec kServeOptions[] = {
    {.name = "listen",
     .kind = Kind::text,
     .group = "Options",
     .value = "ADDR",
     .fallback = "127.0.0.1:8080",
     .help = "where clients connect: HOST:PORT, :PORT (from everywhere) or unix:/PATH"},
    {.name = "store", .kind = Kind::text, .group = "Options", .value = "DIR", .help = "the store (KVMSERVER_STORE)"},
    {.name = "threads",
     .letter = 't',
     .kind = Kind::text,
     .group = "Options",
     .value = "N",
     .fallback = "0",
     .help = "request machines of a function at most; 0 = number of CPUs"},
    {.name = "idle",
     .kind = Kind::text,
     .group = "Options",
     .value = "SECONDS",
     .fallback = "60",
     .help = "end the process of a function that nobody asks"},
    {.name = "rest",
     .kind = Kind::text,
     .group = "Options",
     .value = "SECONDS",
     .fallback = "10",
     .help = "give a machine's memory back when nobody asks it, before its process ends; 0 = never"},
    {.name = "max-vms",
     .kind = Kind::text,
     .group = "Options",
     .value = "N",
     .fallback = "0",
     .help = "request machines of all functions together; 0 = no limit"},
    {.name = "memory-reserve",
     .kind = Kind::text,
     .group = "Options",
     .value = "SIZE",
     .help = "end idle machines, longest idle first, while less memory is available, as 500M or 2G (512M, a twentieth "
             "of the memory at most); 0 = never"},
    {.name = "log-rate",
     .kind = Kind::count,
     .group = "Options",
     .value = "KIB",
     .fallback = "1024",
     .help = "what a function may print in a second; more is dropped, and counted; 0 = no limit"},
    {.name = "jail",
     .kind = Kind::text,
     .group = "Options",
     .value = "HOW",
     .fallback = "auto",
     .help = "walls around the processes of functions: auto (all that this host allows), strict (all, or no function "
             "runs) or off"},
    {.name = "cgroup",
     .kind = Kind::text,
     .group = "Options",
     .value = "HOW",
     .fallback = "auto",
     .help = "a control group for each function's process: auto (where this host allows it), strict (or end) or off"},
    {.name = "share-across-tenants",
     .group = "Options",
     .help = "functions of different tenants have equal pages in memory once, whose use each can time"},
    {.name = "max-connections",
     .kind = Kind::text,
     .group = "Options",
     .value = "N",
     .fallback = "0",
     .help = "connections at once; 0 = as many as open files allow, at most 16384"},
    {.name = "max-connections-per-client",
     .kind = Kind::text,
     .group = "Options",
     .value = "N",
     .fallback = "0",
     .help = "of these of one address (IPv6: of one /64); 0 = half, and of this host's own any number"},
    {.name = "min-rate",
     .kind = Kind::text,
     .group = "Options",
     .value = "BYTES",
     .fallback = "32",
     .help = "a second that a client must move when it is waited for; 0 = any"},
    {.name = "access-log",
     .kind = Kind::text,
     .group = "Options",
     .value = "FILE",
     .help = "a JSON object a request; - is stdout"},
    {.name = "traces",
     .kind = Kind::text,
     .group = "Options",
     .value = "URL",
     .help = "the OpenTelemetry collector that gets a span for each request: http://HOST:4318 (/v1/traces if it has no "
             "path)"},
    {.name = "traces-headers",
     .kind = Kind::text,
     .group = "Options",
     .value = "FILE",
     .help = "headers for the collector, such as a token: lines NAME: VALUE"},
    {.name = "trace-sample",
     .kind = Kind::text,
     .group = "Options",
     .value = "SHARE",
     .fallback = "1",
     .help = "of the requests that are traced if they have no traceparent: 0 to 1"},
    {.name = "ceilings",
     .kind = Kind::text,
     .group = "Options",
     .value = "FILE",
     .help = "what functions are granted at most, TOML (docs/SERVE.md); SIGHUP reads it again"},
    {.name = "admin",
     .kind = Kind::repeated,
     .group = "Options",
     .value = "ADDR",
     .help = "where the API listens: HOST:PORT for those with a token, or a socket's path (STORE/admin.sock)"},
    {.name = "admin-certificate",
     .kind = Kind::text,
     .group = "Options",
     .value = "FILE",
     .help = "PEM chain: TLS for the API"},
    {.name = "admin-key", .kind = Kind::text, .group = "Options", .value = "FILE", .help = "PEM key"},
    {.name = "examinations",
     .kind = Kind::text,
     .group = "Options",
     .value = "N",
     .fallback = "2",
     .help = "uploaded snapshots that are examined at once, by a process each"},
    {.name = "examination-queue",
     .kind = Kind::text,
     .group = "Options",
     .value = "N",
     .fallback = "16",
     .help = "uploaded snapshots that wait for it; more get 503"},
    {.name = "token-uploads",
     .kind = Kind::text,
     .group = "Options",
     .value = "MIB",
     .fallback = "8192",
     .help = "uploads under way of a token; 0 = no limit"},
    {.name = "uploads",
     .kind = Kind::text,
     .group = "Options",
     .value = "MIB",
     .fallback = "32768",
     .help = "uploads under way of all; 0 = no limit"},
    {.name = "keep-free",
     .kind = Kind::text,
     .group = "Options",
     .value = "MIB",
     .help = "what uploads leave free on the store's disk (1024, a twentieth of the disk at most)"},
    {.name = "chunks",
     .kind = Kind::text,
     .group = "Options",
     .value = "URL",
     .help = "keep chunks of snapshots in a bucket, the disk is a cache: "
             "s3://BUCKET[/PREFIX]?endpoint=URL[&region=REGION]"},
    {.name = "chunks-credentials",
     .kind = Kind::text,
     .group = "Options",
     .value = "FILE",
     .help = "of AWS's form, profile [default] (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN)"},
    {.name = "chunk-cache-size",
     .kind = Kind::text,
     .group = "Options",
     .value = "SIZE",
     .help = "with --chunks: what chunks may take on the disk, as 500M or 20G (no limit)"},
    {.name = "cluster",
     .kind = Kind::text,
     .group = "Options",
     .value = "URL",
     .help = "share functions with other daemons, by etcd://HOST:PORT[,...][/PREFIX][?tls=yes]; needs --chunks"},
    {.name = "cluster-key",
     .kind = Kind::text,
     .group = "Options",
     .value = "FILE",
     .help = "with --cluster: the key that seals what is in etcd, the same for all daemons (openssl rand -hex 32)"},
    {.name = "cluster-credentials",
     .kind = Kind::text,
     .group = "Options",
     .value = "FILE",
     .help = "with --cluster: USER:PASSWORD of etcd"},
    {.name = "cluster-away-limit",
     .kind = Kind::text,
     .group = "Options",
     .value = "SECONDS",
     .fallback = "0",
     .help = "with --cluster: serve functions for so long at most while etcd is away; 0 = as long as it takes"},
    {.name = "node",
     .kind = Kind::text,
     .group = "Options",
     .value = "NAME",
     .help = "with --cluster: what `kvmserver nodes` calls this daemon (the host's name)"},
    {.name = "tls",
     .kind = Kind::flag,
     .group = "Options",
     .help = "serve TLS, with the certificates of `kvmserver certificate`"},
    {.name = "tls-certificate",
     .kind = Kind::text,
     .group = "Options",
     .value = "FILE",
     .help = "PEM chain: serve TLS, with this one for all other hosts"},
    {.name = "tls-key", .kind = Kind::text, .group = "Options", .value = "FILE", .help = "PEM key"},
};

template <class Number>
Number number_of(const Invocation& invocation, std::string_view name, Number fallback, Number most) {
    const std::string text = text_of(invocation, name);
    if (text.empty())
        return fallback;
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !(value >= 0) || value > most)
        throw UserError(ExitCode::usage, fmt::format("--{}: '{}' is not a number from 0 to {}", name, text, most));
    return value;
}

// "20G"; units are powers of 1024.
std::uint64_t size_of(const Invocation& invocation, std::string_view name) {
    constexpr std::string_view kUnits = "KMGT";
    constexpr int kBitsOfUnit = 10;
    const std::string text = text_of(invocation, name);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
    const auto unit = rest.size() == 1 ? kUnits.find(rest.front()) : kUnits.npos;
    const int bits = unit == kUnits.npos ? 0 : kBitsOfUnit * static_cast<int>(unit + 1);
    const bool sound = error == std::errc() && (rest.empty() || unit != kUnits.npos);
    if (!sound || value == 0 || value > (UINT64_MAX >> 1 >> bits))
        throw UserError(ExitCode::usage, fmt::format("--{}: '{}' is not a size such as 500M or 20G", name, text));
    return value << bits;
}

tinykvm::UniqueFd listen_on(const std::string& text) {
    const SocketAddress address = parse_listen_address(text);
    // Kept when the daemon ends, since a successor may have the socket. The next daemon replaces it.
    tinykvm::UnixName name;
    tinykvm::UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (fd && address.storage.ss_family != AF_UNIX)
        ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const auto bound = [&] {
        if (address.storage.ss_family != AF_UNIX)
            return ::bind(fd.get(), address.get(), address.bytes) == 0;
        const int error = bind_unix(fd.get(), address, name);
        errno = -error;
        return error == 0;
    };
    if (!fd || !bound() || ::listen(fd.get(), 1024) < 0) {
        const int error = errno;
        throw UserError(
            error == EADDRINUSE ? ExitCode::conflict
            : error == EACCES   ? ExitCode::not_permitted
                                : ExitCode::failure,
            fmt::format("cannot listen on {}: {}{}", text, std::strerror(error),
                        error == EADDRINUSE ? "; stop the other server or choose another address with --listen" : ""));
    }
    name.keep();
    return fd;
}

// The API, which runs beside the functions while this object exists.
struct Admin final : daemon::Companion {
    store::Store store; // a separate connection: the daemon's notices changes made through it
    admin::OpenStore source;
    admin::Api api;
    std::unique_ptr<admin::Listener> listener;
    Admin(const std::filesystem::path& path, daemon::Control& control, const admin::ListenerOptions& options,
          const daemon::JailSettings& jail, std::shared_ptr<daemon::Examinations> examinations,
          const admin::UploadLimits& uploads, const store::StoreOptions& opened)
        : store(path, opened), source(path, store), api(source, {.control = &control,
                                                                 .executable = ops::kSelf,
                                                                 .jail = jail,
                                                                 .examinations = std::move(examinations),
                                                                 .version = version_number(),
                                                                 .uploads = uploads}),
          listener(std::make_unique<admin::Listener>(api, options)) {
        try {
            store::remove_leftovers(store);
        } catch (const std::exception& error) { // gc will retry; what is deployed can be served
            fmt::print(stderr, "kvmserver: cannot remove leftovers in the store: {}\n", error.what());
        }
        listener->start();
    }
    void reload() override { listener->reload_certificate(); }
    void drain() override { listener->drain(); }
    bool finish(std::chrono::milliseconds patience) override { return listener->stop(patience); }
    Admin(const Admin&) = delete;
    Admin& operator=(const Admin&) = delete;
};

admin::ListenerOptions admin_options(const Invocation& invocation, const Context& context,
                                     const std::filesystem::path& store) {
    admin::ListenerOptions options;
    options.socket = admin::default_socket(store);
    if (const auto given = invocation.settings.find("admin"); given != invocation.settings.end())
        for (const std::string& text : given->second.values) {
            const admin::Address address = admin::parse_address(text);
            if (!address.socket.empty())
                options.socket = absolute_path(context.folder, address.socket);
            else if (!options.tcp.empty())
                throw UserError(ExitCode::usage,
                                fmt::format("--admin: {} and {}: the API listens at one address besides its socket",
                                            options.tcp, text));
            else
                options.tcp = text;
        }
    options.certificate = text_of(invocation, "admin-certificate");
    options.key = text_of(invocation, "admin-key");
    if (options.certificate.empty() != options.key.empty())
        throw UserError(ExitCode::usage, "--admin-certificate and --admin-key go together; give both");
    if (!options.certificate.empty() && options.tcp.empty())
        throw UserError(ExitCode::usage, "--admin-certificate is for --admin HOST:PORT");
    for (std::string* const file : {&options.certificate, &options.key})
        if (!file->empty())
            *file = absolute_path(context.folder, *file);
    return options;
}

std::optional<daemon::TraceOptions> trace_options(const Invocation& invocation, const std::string& headers) {
    const std::string url = text_of(invocation, "traces");
    const double share = number_of<double>(invocation, "trace-sample", 1, 1);
    if (url.empty()) {
        for (const char* option : {"traces-headers", "trace-sample"})
            if (!text_of(invocation, option).empty())
                throw UserError(ExitCode::usage, fmt::format("--{} is for --traces URL", option));
        return std::nullopt;
    }
    return daemon::TraceOptions{
        .send = tracing::send_to(tracing::traces_url(url),
                                 headers.empty() ? tracing::Headers() : tracing::read_headers(headers)),
        .share = share,
        .version = version_number()};
}

daemon::ExaminationLimits examination_limits(const Invocation& invocation) {
    daemon::ExaminationLimits limits;
    limits.at_once = number_of<unsigned>(invocation, "examinations", limits.at_once, 1024);
    limits.waiting = number_of<unsigned>(invocation, "examination-queue", limits.waiting, 1024);
    if (limits.at_once == 0)
        throw UserError(ExitCode::usage, "--examinations: '0' would examine nothing; give 1 or more");
    return limits;
}

admin::UploadLimits upload_limits(const Invocation& invocation) {
    constexpr std::uint64_t kMiB = 1 << 20, kMax = std::uint64_t{1} << 40;
    admin::UploadLimits limits;
    limits.of_token = kMiB * number_of<std::uint64_t>(invocation, "token-uploads", limits.of_token / kMiB, kMax);
    limits.of_all = kMiB * number_of<std::uint64_t>(invocation, "uploads", limits.of_all / kMiB, kMax);
    if (!text_of(invocation, "keep-free").empty())
        limits.keep_free = kMiB * number_of<std::uint64_t>(invocation, "keep-free", 0, kMax);
    return limits;
}

// Hides everything that belongs to the daemon from functions.
daemon::JailSettings jail_settings(const Invocation& invocation, const daemon::ServeOptions& options,
                                   const admin::ListenerOptions& admin, const std::filesystem::path& traces_headers,
                                   const SecretFiles& files) {
    daemon::JailSettings jail;
    jail.mode = platform::jail_mode(invocation, "jail");
    (void)FolderCache(default_cache_folder()).usable(); // creates the folder: a missing one cannot be hidden
    for (const std::filesystem::path& path :
         {options.store, default_cache_folder(), std::filesystem::path(admin.socket),
          std::filesystem::path(options.certificate), std::filesystem::path(options.key),
          std::filesystem::path(admin.certificate), std::filesystem::path(admin.key),
          std::filesystem::path(options.access_log), traces_headers, std::filesystem::path(files.chunks),
          std::filesystem::path(files.cluster), std::filesystem::path(files.cluster_key)})
        if (path.is_absolute())
            jail.hidden.push_back(path.lexically_normal());
    return jail;
}

// Only warns: the daemon starts anyway. Its store can be managed, and /dev/kvm may work later.
void tell_of_trouble(jail::Mode mode) {
    try {
        probe_line();
        if (mode == jail::Mode::off)
            return;
        const auto missing = daemon::FunctionProcess::for_trial(ops::kSelf, jail::Mode::automatic)->missing_walls();
        if (!missing || !missing->empty())
            fmt::print(stderr, "kvmserver: the jail of functions lacks walls here{}{}: kvmserver doctor{}\n",
                       missing ? ": " : "", missing.value_or(""),
                       mode == jail::Mode::strict ? "; with --jail=strict no function runs" : "");
    } catch (const std::exception& reason) {
        fmt::print(stderr,
                   "kvmserver: no function can run here ({}); requests are answered with 502 until that is mended: "
                   "kvmserver doctor\n",
                   reason.what());
    }
}

int serve(const Invocation& invocation, Context& context) {
    if (!invocation.operands.empty())
        throw UserError(ExitCode::usage,
                        fmt::format("serve takes no '{}'; see kvmserver serve --help", invocation.operands.front()));
    daemon::ServeOptions options;
    options.store = platform::store_path(invocation, context);
    options.certificate = text_of(invocation, "tls-certificate");
    options.key = text_of(invocation, "tls-key");
    if (options.certificate.empty() != options.key.empty())
        throw UserError(ExitCode::usage, "--tls-certificate and --tls-key go together; give both");
    options.tls = platform::flag(invocation, "tls") || !options.certificate.empty();
    const unsigned machines = number_of<unsigned>(invocation, "threads", 0, 1024);
    options.machines = machines == 0 ? context.cpus : machines;
    options.idle_seconds = number_of<double>(invocation, "idle", 60, 1e9);
    options.rest_seconds = number_of<double>(invocation, "rest", 10, 1e9);
    options.max_machines = number_of<std::uint64_t>(invocation, "max-vms", 0, 1'000'000);
    if (const std::string reserve = text_of(invocation, "memory-reserve"); !reserve.empty())
        options.memory_reserve = reserve == "0" ? 0 : size_of(invocation, "memory-reserve");
    options.log_rate = number_of<std::uint64_t>(invocation, "log-rate", options.log_rate >> 10, 1'000'000) << 10;
    constexpr std::uint64_t kMax = 10'000'000;
    options.max_connections = number_of<std::uint64_t>(invocation, "max-connections", 0, kMax);
    options.max_per_client = number_of<std::uint64_t>(invocation, "max-connections-per-client", 0, kMax);
    options.min_rate = number_of<std::uint64_t>(invocation, "min-rate", 32, kMax);
    options.threads = std::max(1u, context.cpus / 2);
    options.access_log = text_of(invocation, "access-log");
    if (!options.access_log.empty() && options.access_log != "-")
        options.access_log = absolute_path(context.folder, options.access_log);
    for (std::string* const file : {&options.certificate, &options.key})
        if (!file->empty())
            *file = absolute_path(context.folder, *file);
    if (const std::string ceilings = text_of(invocation, "ceilings"); !ceilings.empty())
        options.ceilings = absolute_path(context.folder, ceilings);
    std::string listen = text_of(invocation, "listen", "127.0.0.1:8080");
    if (listen.starts_with(tinykvm::kUnixRule))
        listen =
            tinykvm::kUnixRule + absolute_path(context.folder, listen.substr(std::string(tinykvm::kUnixRule).size()));
    options.listen = [listen] { return listen_on(listen); };
    const admin::ListenerOptions admin_listener = admin_options(invocation, context, options.store);
    options.share_across_tenants = platform::flag(invocation, "share-across-tenants");
    std::string traces_headers = text_of(invocation, "traces-headers");
    if (!traces_headers.empty())
        traces_headers = absolute_path(context.folder, traces_headers);
    options.traces = trace_options(invocation, traces_headers);
    const SecretFiles files = secret_files(invocation, context);
    options.cluster_away_seconds = number_of<double>(invocation, "cluster-away-limit", 0, 1e9);
    open_shared(invocation, files, options);
    if (invocation.settings.contains("chunk-cache-size"))
        options.chunk_cache_bytes = size_of(invocation, "chunk-cache-size");
    options.jail = jail_settings(invocation, options, admin_listener, traces_headers, files);
    options.jail.groups = std::make_shared<daemon::ControlGroups>(platform::jail_mode(invocation, "cgroup"));
    options.examinations = std::make_shared<daemon::Examinations>(daemon::Examiner{ops::kSelf, options.jail.mode},
                                                                  examination_limits(invocation));
    options.beside = [store = options.store, jail = options.jail, examinations = options.examinations,
                      uploads = upload_limits(invocation), listen = admin_listener,
                      opened = store::StoreOptions{.bucket = options.chunks, .shared = options.cluster}](
                         daemon::Control& control) {
        auto running = std::make_unique<Admin>(store, control, listen, jail, examinations, uploads, opened);
        fmt::print(stderr, "kvmserver: the API listens on {}\n", running->listener->address());
        tell_of_trouble(jail.mode);
        if (!jail.groups->missing().empty())
            fmt::print(stderr,
                       "kvmserver: functions run with the limits of their machines only, without control groups: {}\n",
                       jail.groups->missing());
        return running;
    };
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
