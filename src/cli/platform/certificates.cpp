// kvmserver certificate: certificates of hosts, for `serve --tls`.
#include <fmt/format.h>

#include "src/cli/help/nearest.hpp"
#include "src/cli/paths.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/table.hpp"
#include "src/cli/small_file.hpp"
#include "src/store/functions/certificates.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using nlohmann::json;
using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr const char* kSynopsis = "add CHAIN KEY | list | remove NAME";
constexpr OptionSpec kName{.name = "name",
                           .kind = Kind::text,
                           .group = "Options",
                           .value = "NAME",
                           .help = "what to call it, and which one it replaces (the first host that it is for)"};

std::string hosts_text(const json& certificate) {
    std::string all;
    for (const json& host : certificate.at("hosts"))
        all += (all.empty() ? "" : ",") + host.get<std::string>();
    return all;
}

int add(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "certificate add", "CHAIN KEY", 3, 3);
    json body;
    for (const auto& [member, file] : {std::pair("chain", invocation.operands[1]), {"key", invocation.operands[2]}})
        body[member] = read_small_file(absolute_path(context.folder, file), store::kMaxCertificateBytes, "PEM texts");
    if (const auto name = text(invocation, "name"))
        body["name"] = *name;
    const auto platform = connect(invocation, context);
    const json made = platform->call("POST", target_of({"certificates"}), body);
    if (platform->serves() && !platform->listening().address.empty() && !platform->listening().tls &&
        !flag(invocation, "quiet"))
        context.err << "kvmserver: the daemon does not serve TLS yet: start it with --tls\n";
    if (flag(invocation, "json")) {
        print_json(context, made);
        return 0;
    }
    context.out << fmt::format("Added {}: for {}{}\n", made.at("name").get<std::string>(), hosts_text(made),
                               made.contains("expires") ? ", expires " + until(made["expires"]) : "");
    return 0;
}

int list_certificates(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "certificate list", "", 1, 1);
    const json all = connect(invocation, context)->call("GET", target_of({"certificates"}));
    if (flag(invocation, "json")) {
        print_json(context, all);
        return 0;
    }
    Table table({"NAME", "HOSTS", "EXPIRES", "CHANGED"});
    for (const json& certificate : all.at("certificates"))
        table.add({certificate.at("name"), hosts_text(certificate),
                   certificate.contains("expires") ? until(certificate["expires"]) : "unknown",
                   ago(certificate.at("changed").get<std::string>())});
    table.print(invocation, context);
    return 0;
}

int remove_certificate(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "certificate remove", "NAME", 2, 2);
    const json done = connect(invocation, context)->call("DELETE", target_of({"certificates", invocation.operands[1]}));
    if (flag(invocation, "json"))
        print_json(context, done);
    else
        context.out << "Removed " << invocation.operands[1] << '\n';
    return 0;
}

int certificate(const Invocation& invocation, Context& context) {
    const std::string action = invocation.operands.empty() ? "" : invocation.operands.front();
    if (action != "add" && text(invocation, "name"))
        throw UserError(ExitCode::usage, "--name is for certificate add");
    if (action == "add")
        return add(invocation, context);
    if (action == "list")
        return list_certificates(invocation, context);
    if (action == "remove")
        return remove_certificate(invocation, context);
    throw UserError(ExitCode::usage, fmt::format("usage: kvmserver certificate {}{}", kSynopsis,
                                                 did_you_mean(action, {"add", "list", "remove"})));
}

} // namespace

Command certificate_command() {
    return {.name = "certificate",
            .synopsis = kSynopsis,
            .summary = "certificates of hosts, for serve --tls",
            .operands = Operands::ours,
            .options = options({kName, kNoHeader}),
            .action = certificate};
}

} // namespace kvmserver::cli
