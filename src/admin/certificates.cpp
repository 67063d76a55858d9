// Certificates of the public listener.
#include "src/store/functions/certificates.hpp"
#include "src/admin/handlers.hpp"
#include "src/common/time_text.hpp"
#include "src/http/tls.hpp"
#include "src/store/errors.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::admin {
namespace {

json certificate_json(const store::Certificate& certificate, const http::TlsContext& context) {
    json out{{"name", certificate.name},
             {"hosts", context ? http::hosts_of(context) : std::vector<std::string>()},
             {"changed", time_text(certificate.changed)}};
    if (const auto expires = http::expiry_of(context))
        out["expires"] = time_text(*expires * 1000);
    return out;
}

http::TlsContext open(const store::Certificate& certificate) {
    try {
        return http::certificate_from(certificate.chain, certificate.key, certificate.name);
    } catch (const tinykvm::UserError&) { // the daemon's log tells
        return nullptr;
    }
}

} // namespace

void list_certificates(Call& call) {
    auto list = json::array();
    for (const store::Certificate& certificate : store::Certificates(call.store()).list())
        list.push_back(certificate_json(certificate, open(certificate)));
    call.reply(200, {{"certificates", list}});
}

void add_certificate(Call& call) {
    Members members = call.members();
    store::Certificate certificate{.name = members.text("name").value_or(""),
                                   .chain = members.need_text("chain"),
                                   .key = members.need_text("key")};
    members.done();
    http::TlsContext context;
    try {
        context = http::certificate_from(certificate.chain, certificate.key,
                                         certificate.name.empty() ? "certificate" : certificate.name);
    } catch (const tinykvm::UserError& error) {
        throw store::BadValue(error.what());
    }
    const std::vector<std::string> hosts = http::hosts_of(context);
    if (hosts.empty())
        throw store::BadValue("the certificate names no host: it needs a subjectAltName of type DNS");
    if (certificate.name.empty())
        certificate.name = hosts.front();
    certificate.changed =
        store::Certificates(call.api.source().make()).put(certificate.name, certificate.chain, certificate.key);
    call.api.changed();
    call.reply(201, certificate_json(certificate, context));
}

void delete_certificate(Call& call) {
    call.no_members();
    store::Certificates(call.store()).remove(call.param("certificate"));
    call.api.changed();
    call.reply(200, {{"removed", call.param("certificate")}});
}

} // namespace kvmserver::admin
