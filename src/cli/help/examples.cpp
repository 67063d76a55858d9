#include "src/cli/help/examples.hpp"

#include <algorithm>
#include <iterator>

namespace kvmserver::cli {
namespace {

// Sorted so that the examples of a command follow each other.
constexpr Example kExamples[] = {
    {"run", "kvmserver run --allow-all node server.js", "one machine, which keeps its state"},
    {"run", "kvmserver run -e -t 4 --allow-listen=:8080 --allow-read=. node server.js",
     "a clean machine for every connection, four at a time"},
    {"run", "kvmserver run --http -w auto", "the program of kvmserver.toml, a clean machine for every HTTP request"},
    {"run", "kvmserver run -e --allow-all node app.js ++ storage redis-server --save ''",
     "and Redis in a machine that keeps its state, which app.js reaches at 127.0.0.1:6379"},
    {"snapshot", "kvmserver snapshot -w auto -o app.snap --allow-all node server.js", "boots, warms up, saves"},
    {"snaprun", "kvmserver snaprun -e -t 0 app.snap", "as many machines as there are CPUs"},
    {"debug", "kvmserver debug app.snap --request price.request", "prints what to type in gdb, then the reply"},
    {"debug", "kvmserver debug hello@3 --gdb 7777", "version 3 of a function, at each request"},
    {"inspect", "kvmserver inspect app.snap --verify", "what is in it, and whether each chunk is whole"},
    {"inspect", "kvmserver inspect hello@3", "version 3 of a function"},
    {"init", "kvmserver init --template python hello", "a small program in the new folder hello"},
    {"init", "kvmserver init", "a manifest for the program in this folder"},
    {"init", "kvmserver init --program service.py", "a manifest for this program, whatever its name"},
    {"dev", "kvmserver dev --watch", "serves on 127.0.0.1:3000, and again after each change"},
    {"deploy", "kvmserver deploy", "builds the program of ./kvmserver.toml and makes it live"},
    {"deploy", "kvmserver deploy app.snap --name hello --remote prod", "a snapshot, on another host"},
    {"deploy", "kvmserver deploy --json | jq 'select(.event == \"live\").url'", "for programs: events, a line each"},
    {"deploy", "kvmserver deploy --no-activate && kvmserver traffic hello 3=90 4=10", "a tenth of the requests first"},
    {"list", "kvmserver list --sort changed", "what changed last comes first"},
    {"ls", "kvmserver ls --json", "for programs"},
    {"describe", "kvmserver describe hello", "its routes, live versions and variables"},
    {"versions", "kvmserver versions hello", "the newest first"},
    {"history", "kvmserver history hello", "who changed it, when, how and why"},
    {"rollback", "kvmserver rollback hello", "to the version before the live one"},
    {"rollback", "kvmserver rollback hello -m 'checkout fails'", "and why, for the history"},
    {"rollback", "kvmserver rollback hello 3 --dry-run", "only says what would happen"},
    {"suspend", "kvmserver suspend counter", "its process ends; the next request goes on from there"},
    {"resume", "kvmserver resume counter", "so that the next request need not wait for it"},
    {"nodes", "kvmserver nodes --json", "for programs"},
    {"drain", "kvmserver drain node2", "load balancers send node2 no more requests: it can be stopped"},
    {"uncordon", "kvmserver uncordon node2", "they send it requests again"},
    {"migrate", "kvmserver migrate counter --to prod", "it goes on there; this daemon forwards its requests"},
    {"traffic", "kvmserver traffic hello", "shows how requests are divided"},
    {"traffic", "kvmserver traffic hello 3=90 4=10", "a tenth of the requests to version 4"},
    {"delete", "kvmserver delete hello --version 2", "one version that is not live"},
    {"delete", "kvmserver delete hello -y", "the function, without a question"},
    {"env", "kvmserver env set hello LOG=debug", "new machines have it"},
    {"secret", "kvmserver secret set hello DB_PASSWORD", "asks for the value"},
    {"secret", "pass show db | kvmserver secret set hello DB_PASSWORD --stdin", "takes it from a program"},
    {"push", "kvmserver push app.snap --remote prod", "sends a snapshot without deploying it"},
    {"pull", "kvmserver pull hello@3 -o hello.snap", "the snapshot of version 3"},
    {"invoke", "kvmserver invoke hello --path /health --timing", "a request, and how long each step took"},
    {"invoke", "kvmserver invoke hello -X POST -H 'Content-Type: application/json' -d @body.json",
     "the body from a file"},
    {"logs", "kvmserver logs hello -f", "goes on with what comes"},
    {"logs", "kvmserver logs hello --since 10m --previous", "of the version before the live one"},
    {"logs", "kvmserver logs hello --errors --since 1h", "failed requests, stderr, and what the daemon says"},
    {"top", "kvmserver top", "a table that is drawn anew each second; q ends it"},
    {"gc", "kvmserver gc --dry-run", "what could be removed"},
    {"verify", "kvmserver verify", "reads the whole store back"},
    {"verify", "kvmserver verify --cluster", "whether etcd and the bucket have all that the functions need"},
    {"certificate", "kvmserver certificate add fullchain.pem privkey.pem", "for the hosts that it names"},
    {"certificate", "kvmserver certificate list", "with the days that are left"},
    {"token", "kvmserver token create ci --scope deploy --prefix web --expires 30d",
     "deploys functions web and web-*, nothing else"},
    {"login", "kvmserver login https://server:9443 --name prod", "asks for the token; then: --remote prod"},
    {"remote", "kvmserver remote list", "the names that --remote takes"},
    {"serve", "kvmserver serve", "all functions of the store, on 127.0.0.1:8080"},
    {"serve", "kvmserver serve --listen :80 --admin 127.0.0.1:9443 --access-log access.ndjson",
     "for other hosts, with the web page at http://127.0.0.1:9443/ui"},
    {"doctor", "kvmserver doctor", "a line for each check, with what to do"},
    {"doctor", "sudo kvmserver doctor --fix", "loads the module, or adds you to the group"},
    {"help", "kvmserver help deploy", "all options of a command"},
    {"completion", "eval \"$(kvmserver completion bash)\"", "in ~/.bashrc"},
    {"version", "kvmserver version", ""},
};

} // namespace

std::span<const Example> examples_of(std::string_view command) {
    const auto same = [command](const Example& example) { return example.command == command; };
    const auto first = std::ranges::find_if(kExamples, same);
    const auto last = std::find_if_not(first, std::end(kExamples), same);
    return {first, last};
}

} // namespace kvmserver::cli
