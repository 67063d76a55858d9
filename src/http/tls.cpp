#include "src/http/tls.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include <boost/asio/ssl/context.hpp>

#include "tinykvm/base/error.hpp"

namespace kvmserver::http {
namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

[[noreturn]] void refuse(const std::string& file, const char* what, const error_code& error) {
    throw tinykvm::UserError(tinykvm::ExitCode::failure, file + ": " + what + ": " + error.message());
}

// ALPN: we serve only HTTP/1.1. A client that offers only other protocols gets an alert.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned in_size,
                    void*) {
    static constexpr unsigned char ours[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1',
                                             8, 'h', 't', 't', 'p', '/', '1', '.', '0'};
    unsigned char* chosen = nullptr;
    if (SSL_select_next_proto(&chosen, out_size, ours, sizeof ours, in, in_size) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

void prepare(ssl::context& context) {
    SSL_CTX* const native = context.native_handle();
    SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
    SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS); // idle connections hold no buffers
    SSL_CTX_set_alpn_select_cb(native, choose_protocol, nullptr);
    // Do not ask for the passphrase of an encrypted key on the terminal.
    SSL_CTX_set_default_passwd_cb(native, [](char*, int, int, void*) { return 0; });
}

std::string lower(std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    return out;
}

struct ByHost {
    ssl::context context{ssl::context::tls_server};
    std::map<std::string, TlsContext, std::less<>> hosts;
    TlsContext other; // may be null

    const TlsContext& find(std::string_view host) const {
        auto found = hosts.find(host);
        if (const auto dot = host.find('.'); found == hosts.end() && dot != host.npos)
            found = hosts.find("*" + std::string(host.substr(dot)));
        return found == hosts.end() ? other : found->second;
    }
};

int choose_certificate(SSL* connection, int* alert, void* all) {
    const char* const asked = SSL_get_servername(connection, TLSEXT_NAMETYPE_host_name);
    const TlsContext& chosen = static_cast<const ByHost*>(all)->find(lower(asked ? asked : ""));
    if (!chosen) {
        *alert = SSL_AD_UNRECOGNIZED_NAME;
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    SSL_set_SSL_CTX(connection, chosen->native_handle());
    return SSL_TLSEXT_ERR_OK;
}

} // namespace

TlsContext client_context(const std::string& authorities) {
    auto context = std::make_shared<ssl::context>(ssl::context::tls_client);
    SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
    error_code error;
    context->set_default_verify_paths(error); // a host may have none
    if (authorities.empty())
        return context;
    context->load_verify_file(authorities, error);
    if (error)
        refuse(authorities, "no usable certificates (PEM)", error);
    return context;
}

TlsContext load_certificate(const std::string& chain_file, const std::string& key_file) {
    auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
    prepare(*context);
    error_code error;
    context->use_certificate_chain_file(chain_file, error);
    if (error)
        refuse(chain_file, "no usable certificate chain (PEM)", error);
    context->use_private_key_file(key_file, ssl::context::pem, error);
    if (error)
        refuse(key_file, "no usable private key (PEM, not encrypted) for the certificate", error);
    if (SSL_CTX_check_private_key(context->native_handle()) != 1)
        throw tinykvm::UserError(tinykvm::ExitCode::failure, key_file + ": the key does not belong to " + chain_file);
    return context;
}

TlsContext certificate_from(const std::string& chain, const std::string& key, const std::string& name) {
    const auto refuse_text = [&](const char* what) {
        throw tinykvm::UserError(tinykvm::ExitCode::usage, name + ": " + what);
    };
    auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
    prepare(*context);
    error_code error;
    context->use_certificate_chain(boost::asio::buffer(chain), error);
    if (error)
        refuse_text("no usable certificate chain (PEM)");
    context->use_private_key(boost::asio::buffer(key), ssl::context::pem, error);
    if (error.category() == boost::asio::error::get_ssl_category() &&
        ERR_GET_REASON(error.value()) == X509_R_KEY_VALUES_MISMATCH)
        refuse_text("the key does not belong to the certificate");
    if (error)
        refuse_text("no usable private key (PEM, not encrypted)");
    if (SSL_CTX_check_private_key(context->native_handle()) != 1)
        refuse_text("the key does not belong to the certificate");
    return context;
}

// The common name counts only where there is no other name, as for old clients.
std::vector<std::string> hosts_of(const TlsContext& context) {
    X509* const certificate = SSL_CTX_get0_certificate(context->native_handle());
    std::vector<std::string> hosts;
    const auto add = [&](const ASN1_STRING* text) {
        const auto* const bytes = reinterpret_cast<const char*>(ASN1_STRING_get0_data(text));
        std::string host = lower({bytes, static_cast<std::size_t>(ASN1_STRING_length(text))});
        const bool fits = std::ranges::all_of(host, [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '*';
        });
        if (fits && !host.empty() && std::ranges::find(hosts, host) == hosts.end())
            hosts.push_back(std::move(host));
    };
    using Names = std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)>;
    const Names names(
        static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)),
        &GENERAL_NAMES_free);
    for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i)
        if (const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i); name->type == GEN_DNS)
            add(name->d.dNSName);
    const X509_NAME* const subject = X509_get_subject_name(certificate);
    if (const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1); !names && at >= 0)
        add(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    return hosts;
}

TlsContext by_host(const std::vector<TlsContext>& certificates, TlsContext other) {
    auto all = std::make_shared<ByHost>();
    prepare(all->context);
    for (const TlsContext& certificate : certificates)
        for (const std::string& host : hosts_of(certificate))
            all->hosts[host] = certificate;
    all->other = std::move(other);
    SSL_CTX_set_tlsext_servername_callback(all->context.native_handle(), choose_certificate);
    SSL_CTX_set_tlsext_servername_arg(all->context.native_handle(), all.get());
    return {all, &all->context}; // which lives as long as any connection uses it
}

std::optional<std::int64_t> expiry_of(const TlsContext& context) {
    const X509* const certificate = context ? SSL_CTX_get0_certificate(context->native_handle()) : nullptr;
    std::tm fields{};
    if (!certificate || ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &fields) != 1)
        return std::nullopt;
    return ::timegm(&fields);
}

} // namespace kvmserver::http
