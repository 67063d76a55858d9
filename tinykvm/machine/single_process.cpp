#include "tinykvm/machine/single_process.hpp"

#include <asm/unistd_64.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tinykvm/linux/call.hpp"

namespace tinykvm {
namespace {

struct Hint {
    std::string_view program; // prefix of the name of a program or script
    std::string_view option;
    // `ready`: it forks workers that accept connections themselves, and then only watches over them. `connection`: it
    // forks for each connection.
    ForkMoment serves = ForkMoment::other;
};

constexpr std::string_view kNameIt = "name the program that the script starts";

// The longest prefix that fits wins.
constexpr Hint kHints[] = {
    {"nginx", "-g 'daemon off; master_process off;'", ForkMoment::ready},
    {"openresty", "-g 'daemon off; master_process off;'", ForkMoment::ready},
    {"apache2", "-X", ForkMoment::ready},
    {"httpd", "-X", ForkMoment::ready},
    {"lighttpd", "-D, with server.max-worker = 0"},
    {"haproxy", "-db, without -W"},
    {"squid", "-N"},
    {"varnishd", "nothing does it, its manager always starts a child"},
    {"tinyproxy", "-d"},
    {"gunicorn", "nothing does it: leave out --fork refuse", ForkMoment::ready},
    {"uvicorn", "--workers 1, without --reload"},
    {"hypercorn", "--workers 0"},
    {"sanic", "--single-process"},
    {"granian", "nothing does it: use uvicorn --workers 1"},
    {"uwsgi", "--threads N, without --master and --processes", ForkMoment::ready},
    {"flask", "--no-reload"},
    {"manage.py", "runserver --noreload"},
    {"celery", "worker --pool solo"},
    {"puma", "-w 0 (threads only)", ForkMoment::ready},
    {"unicorn", "nothing does it: leave out --fork refuse", ForkMoment::ready},
    {"php-fpm", "nothing does it: leave out --fork refuse", ForkMoment::ready},
    {"php", "leave PHP_CLI_SERVER_WORKERS unset", ForkMoment::ready},
    {"postgres", "nothing does it, it forks for each connection"},
    {"redis-server", "--daemonize no --save '' --appendonly no (it forks to save)"},
    {"valkey-server", "--daemonize no --save '' --appendonly no (it forks to save)"},
    {"keydb-server", "--daemonize no --save '' --appendonly no (it forks to save)"},
    {"memcached", "leave out -d"},
    {"mysqld_safe", "name mysqld itself"},
    {"mariadbd-safe", "name mariadbd itself"},
    {"mongod", "leave out --fork"},
    {"mosquitto", "leave out -d"},
    {"dnsmasq", "--no-daemon"},
    {"unbound", "-d"},
    {"named", "-g"},
    {"sshd", "nothing does it, it forks for each connection"},
    {"vsftpd", "-obackground=NO -oone_process_model=YES"},
    {"mini_httpd", "nothing does it: leave out --fork refuse, and use -e", ForkMoment::connection},
    {"thttpd", "-D"},
    {"socat", "leave out fork of its address, or use -e", ForkMoment::connection},
    {"darkhttpd", "leave out --daemon"},
    {"gearmand", "leave out --daemon"},
    {"slapd", "-d 0"},
    {"bash", kNameIt},
    {"dash", kNameIt},
    {"sh", kNameIt},
    {"npm", "name node and the script itself"},
    {"npx", "name node and the script itself"},
    {"yarn", "name node and the script itself"},
    {"pm2", "name node and the script itself"},
    {"node", "leave out node:cluster and node:child_process; worker threads are fine"},
    {"next", "name node and the server.js of output: 'standalone'"},
};

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// No letter or '_' may follow the prefix: "php-fpm8.2" fits php-fpm, "shiny" does not fit sh.
bool fits(const Hint& hint, std::string_view name) {
    if (!name.starts_with(hint.program))
        return false;
    const char next = name.size() > hint.program.size() ? name[hint.program.size()] : '\0';
    return (next < 'a' || next > 'z') && (next < 'A' || next > 'Z') && next != '_';
}

const Hint* hint_for(std::string_view name) {
    const Hint* best = nullptr;
    for (const Hint& hint : kHints)
        if (fits(hint, name) && (!best || hint.program.size() > best->program.size()))
            best = &hint;
    return best;
}

struct Known {
    std::string_view name; // of the program, or of the script or module of an interpreter
    const Hint* hint;      // null: unknown
};

Known known(const std::string& program, std::span<const std::string> arguments) {
    std::string_view name = last_part(program);
    const Hint* hint = hint_for(name);
    // The script or module of an interpreter says more: python3 -m uvicorn, node next.
    constexpr std::size_t kLooked = 4;
    const bool applet = name == "busybox"; // busybox's httpd is not Apache's
    for (const std::string& argument : arguments.first(applet ? 0 : std::min(arguments.size(), kLooked)))
        if (const Hint* found = hint_for(last_part(argument)); found && found != hint) {
            hint = found;
            name = last_part(argument);
        }
    return {name, hint};
}

} // namespace

bool is_execve(std::uint32_t call) { return call == __NR_execve || call == __NR_execveat; }

bool children_serve(ForkMoment moment, const std::string& program, std::span<const std::string> arguments) {
    const Hint* hint = known(program, arguments).hint;
    return hint && moment != ForkMoment::other && hint->serves == moment;
}

std::string followed_fork(ForkMoment moment, const std::string& program, std::span<const std::string> arguments) {
    return fmt::format("{} called fork: a machine is one process, so its {} goes on in its place",
                       known(program, arguments).name, moment == ForkMoment::connection ? "child" : "first child");
}

std::string refused_process(std::uint32_t call, const std::string& program, std::span<const std::string> arguments,
                            const std::string& wanted, ForkMoment moment, ForkPolicy policy) {
    const bool execute = is_execve(call);
    const auto [name, hint] = known(program, arguments);
    std::string line = fmt::format("{} called {}: a machine is one process and cannot start another; refused ({})",
                                   name, call_name(call), execute ? "EPERM" : "EAGAIN");
    if (hint)
        line += fmt::format("; to run it as one process: {}", hint->option);
    if (hint && hint->option == kNameIt && execute && !wanted.empty())
        line += ": " + wanted;
    const bool asks = !hint && policy == ForkPolicy::known;
    if (asks && moment == ForkMoment::ready)
        line += "; if its children are workers that accept connections: --fork follow";
    if (moment == ForkMoment::connection && (asks || policy == ForkPolicy::follow))
        line += "; if its child answers the connection: --fork always";
    const bool known_to = hint && hint->serves == ForkMoment::connection && policy == ForkPolicy::known;
    if (moment == ForkMoment::warm_up && (known_to || policy == ForkPolicy::always))
        line += "; a child answers only where the machine is reset after the connection: with -e, not in a warm-up";
    return line;
}

} // namespace tinykvm
