// libFuzzer: manifests, settings and request targets as text; and requests to the admin API of a store that
// two tenants share. No request ends in an error that is ours, and what one tenant asks shows and changes
// nothing of the other's.
//
// First byte: text, or requests.
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>

#include "src/daemon/function_settings.hpp"
#include "src/ops/manifest.hpp"
#include "src/store/files/record.hpp"
#include "tests/fuzz/support.hpp"
#include "tests/unit/admin/world.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using fuzz::Input;

namespace {

constexpr const char* kOthers = "belongs-to-other"; // a value that only the other tenant's function has
constexpr const char* kOther = "other-one";

void check_text(const std::string& text) {
    const auto user_error = [](const auto& action) {
        try {
            action();
        } catch (const tinykvm::UserError& error) {
            FUZZ_REQUIRE(error.what()[0] != '\0');
        }
    };
    user_error([&] {
        const ops::ManifestFacts facts = ops::manifest_facts(text);
        for (const auto& [name, value] : facts.env)
            FUZZ_REQUIRE(!name.empty() && name.find('=') == std::string::npos && value.find('\0') == std::string::npos);
        FUZZ_REQUIRE(facts.health.empty() || facts.health.front() == '/');
    });
    user_error([&] {
        const auto settings = daemon::function_settings(text);
        daemon::values_of(settings, {{"A", text}}, {{"S", text}}, {"S"});
    });
    user_error([&] {
        const store::Route route = store::Route::parse(text);
        FUZZ_REQUIRE(store::Route::parse(route.text()).text() == route.text());
    });
    user_error([&] {
        admin::Request request;
        admin::set_target(request, text);
        std::string again = "/";
        for (const std::string& segment : request.segments)
            again += admin::percent_encoded(segment) + "/";
        admin::Request back;
        admin::set_target(back, again.substr(0, again.size() - 1));
        FUZZ_REQUIRE(back.segments == request.segments);
    });
    daemon::duration_ns(text);
}

struct Tenants {
    admin::test::World world{{.executable = "/bin/false", .follow_quiet = std::chrono::milliseconds(0)}};
    std::string mine, others, reader, everything;
    std::string snapshot; // the one that both have
    std::string before;

    Tenants() {
        using store::kScopeAdmin, store::kScopeDeploy, store::kScopeInvoke, store::kScopeRead;
        snapshot = "sha256:" + store::test::import(world.store, store::test::sample_pieces(1)).digest().hex();
        store::test::deploy(world.store, "mine-one", 1, {"mine-one.localhost"});
        store::test::deploy(world.store, kOther, 2, {"other-one.localhost"});
        store::Tokens tokens(world.store);
        mine = tokens.create("mine", kScopeDeploy | kScopeInvoke | kScopeRead, "mine");
        others = tokens.create("others", kScopeDeploy | kScopeRead, "other");
        reader = tokens.create("reader", kScopeRead);
        everything = tokens.create("everything", kScopeAdmin | kScopeDeploy);
        const std::string value = R"({"value": ")" + std::string(kOthers) + R"("})";
        FUZZ_REQUIRE(ask("PUT", "/v1/functions/other-one/env/VALUE", value, everything).status < 300);
        FUZZ_REQUIRE(ask("PUT", "/v1/functions/other-one/secrets/SECRET", value, everything).status < 300);
        before = store::test::picture(world.store, kOther);
    }
    admin::test::Reply ask(const std::string& method, const std::string& target, const std::string& body,
                           const std::string& token, const admin::Headers& headers = {}) {
        admin::test::Client client(body);
        client.leaves = [](const admin::test::Reply&) { return true; };
        try {
            world.ask(method, target, client, headers, token);
        } catch (const admin::ClientGone&) { // an error after the reply's beginning
        }
        return client.reply();
    }
};

std::string any_word(const Tenants& tenants, Input& in) {
    static constexpr const char* kWords[] = {"mine-one",
                                             "mine-two",
                                             "other-one",
                                             "mine",
                                             "other",
                                             "",
                                             "A",
                                             "VALUE",
                                             "SECRET",
                                             "1",
                                             "2",
                                             "0",
                                             "100",
                                             "mine-one.localhost",
                                             "other-one.localhost",
                                             "other-one.localhost/path",
                                             "/path",
                                             "*.localhost",
                                             "deploy",
                                             "read",
                                             "admin",
                                             "true",
                                             "now",
                                             "60s",
                                             "GET",
                                             "/",
                                             "18446744073709551615",
                                             "-1",
                                             "reader",
                                             "kvm"};
    const unsigned which = in.byte();
    if (which >= 240)
        return in.text(in.byte());
    return which >= 224 ? tenants.snapshot : kWords[which % std::size(kWords)];
}

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string any_value(const Tenants& tenants, Input& in) {
    switch (in.byte() % 9) {
    case 0: return std::to_string(in.byte());
    case 1: return std::to_string(in.take<std::int64_t>());
    case 2: return in.byte() % 2 ? "true" : "false";
    case 3: return "null";
    case 4: return "[" + quoted(any_word(tenants, in)) + "," + quoted(any_word(tenants, in)) + "]";
    case 5:
        return R"({"function": {"routes": [)" + quoted(any_word(tenants, in)) + R"(], "env": {"A": )" +
               quoted(any_word(tenants, in)) + "}}}";
    case 6: return "1e400";
    default: return quoted(any_word(tenants, in));
    }
}

std::string any_body(const Tenants& tenants, Input& in) {
    static constexpr const char* kMembers[] = {"activate", "expires_in", "if_version", "live",   "manifest",
                                               "name",     "pieces",     "prefix",     "routes", "scopes",
                                               "sha256",   "size",       "snapshot",   "value",  "version",
                                               "traffic",  "function",   "headers",    "body",   "method"};
    const unsigned how = in.byte();
    if (how >= 192)
        return in.text(how);
    std::string body = "{";
    for (unsigned n = how % 5; n > 0; --n)
        body += quoted(in.one_of(kMembers)) + ": " + any_value(tenants, in) + (n > 1 ? ", " : "");
    return body + "}";
}

std::string any_target(const Tenants& tenants, Input& in, const admin::Endpoint& endpoint) {
    std::string target;
    for (std::string_view rest = endpoint.path; !rest.empty();) {
        rest.remove_prefix(1);
        const auto end = std::min(rest.find('/'), rest.size());
        const std::string_view word = rest.substr(0, end);
        target += "/" + (word.starts_with('{') ? admin::percent_encoded(any_word(tenants, in)) : std::string(word));
        rest.remove_prefix(end);
    }
    static constexpr const char* kQueries[] = {"dry_run", "keep", "follow", "since", "request_id",
                                               "version", "tail", "method", "path",  "timeout"};
    for (unsigned n = in.byte() % 4; n > 1; --n)
        target += (target.find('?') == std::string::npos ? "?" : "&") + std::string(in.one_of(kQueries)) + "=" +
                  admin::percent_encoded(any_word(tenants, in));
    return in.byte() == 255 ? in.text(64) : target;
}

// True when something may have changed.
bool ask(Tenants& tenants, Input& in) {
    const auto endpoints = admin::endpoints();
    const admin::Endpoint& endpoint = endpoints[in.byte() % endpoints.size()];
    const std::string method = in.byte() % 32 ? std::string(endpoint.method) : "DELETE";
    const std::string target = any_target(tenants, in, endpoint);
    const std::string* const tokens[] = {&tenants.mine, &tenants.mine, &tenants.mine, &tenants.reader,
                                         &tenants.everything};
    const unsigned who = in.byte();
    const std::string token = who >= 250 ? in.text(40) : *tokens[who % std::size(tokens)];
    admin::Headers headers;
    if (in.byte() % 4 == 0)
        headers.emplace_back(in.byte() % 2 ? "If-Match" : "If-None-Match",
                             in.byte() % 2 ? "*" : "\"" + any_word(tenants, in) + "\"");
    if (in.byte() % 4 == 0)
        headers.emplace_back(in.byte() % 2 ? "Range" : "Upload-Offset",
                             in.byte() % 2 ? "bytes=" + any_word(tenants, in) + "-" : any_word(tenants, in));
    const std::string body = any_body(tenants, in);
    const auto reply = tenants.ask(method, target, body, token, headers);
    if (reply.status == 0 && endpoint.path.ends_with("/invoke")) // a machine answers, and here is none
        return false;
    if (reply.status < 200 || reply.status >= 600 || reply.status == 500)
        std::fprintf(stderr, "%d to %s %s: %s\n", reply.status, method.c_str(), target.c_str(), reply.body.c_str());
    FUZZ_REQUIRE(reply.status >= 200 && reply.status < 600 && reply.status != 500);
    if (token == tenants.mine) {
        const bool guessed = (target + body).find(kOthers) != std::string::npos; // a refusal may quote the question
        FUZZ_REQUIRE(guessed || reply.body.find(kOthers) == std::string::npos);
        const bool in_question = (target + body).find("other") != std::string::npos;
        const bool told = !in_question && reply.body.find(kOther) != std::string::npos;
        if (told)
            std::fprintf(stderr, "%d to %s %s: %s\n", reply.status, method.c_str(), target.c_str(), reply.body.c_str());
        FUZZ_REQUIRE(!told);
        FUZZ_REQUIRE(store::test::picture(tenants.world.store, kOther) == tenants.before);
    }
    const bool changed = method != "GET" && method != "HEAD" && reply.status < 300;
    if (changed && token != tenants.mine)
        tenants.before = store::test::picture(tenants.world.store, kOther); // it had the right to change that
    return changed;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static std::optional<Tenants> tenants;
    Input in(data, size);
    if (in.byte() % 4 == 0) {
        const auto rest = in.rest();
        check_text({reinterpret_cast<const char*>(rest.data()), rest.size()});
        return 0;
    }
    if (!tenants)
        tenants.emplace();
    bool changed = false;
    for (unsigned n = 0; n < 6 && !in.empty(); ++n)
        changed |= ask(*tenants, in);
    if (changed)
        tenants.reset();
    return 0;
}
