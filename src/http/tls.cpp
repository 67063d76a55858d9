#include "src/http/tls.hpp"

#include <ctime>
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

} // namespace

TlsContext load_certificate(const std::string& chain_file, const std::string& key_file) {
    auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
    SSL_CTX* native = context->native_handle();
    SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
    SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS); // idle connections hold no buffers
    SSL_CTX_set_alpn_select_cb(native, choose_protocol, nullptr);
    // Do not ask for the passphrase of an encrypted key on the terminal.
    SSL_CTX_set_default_passwd_cb(native, [](char*, int, int, void*) { return 0; });
    error_code error;
    context->use_certificate_chain_file(chain_file, error);
    if (error)
        refuse(chain_file, "no usable certificate chain (PEM)", error);
    context->use_private_key_file(key_file, ssl::context::pem, error);
    if (error)
        refuse(key_file, "no usable private key (PEM, not encrypted) for the certificate", error);
    if (SSL_CTX_check_private_key(native) != 1)
        throw tinykvm::UserError(tinykvm::ExitCode::failure, key_file + ": the key does not belong to " + chain_file);
    return context;
}

std::optional<std::int64_t> expiry_of(const TlsContext& context) {
    const X509* const certificate = context ? SSL_CTX_get0_certificate(context->native_handle()) : nullptr;
    std::tm fields{};
    if (!certificate || ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &fields) != 1)
        return std::nullopt;
    return ::timegm(&fields);
}

} // namespace kvmserver::http
