#include "src/etcd/transfer.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

namespace kvmserver::etcd {
namespace {

constexpr long kKeepIdle = 10, kKeepInterval = 5; // seconds: a host that vanished is noticed in about a minute
constexpr long kOk = 200;

// Processes of functions must not inherit it.
curl_socket_t open_closed_on_exec(void*, curlsocktype, curl_sockaddr* address) {
    return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

} // namespace

Transfer::Transfer(const Limits& limits)
    : curl_(remote::Curl::get()), limits_(limits), headers_(nullptr, curl_.slist_free_all),
      easy_(curl_.easy_init(), curl_.easy_cleanup) {
    if (!easy_)
        throw std::bad_alloc();
}

void Transfer::add_header(const std::string& line) {
    curl_slist* const longer = curl_.slist_append(headers_.get(), line.c_str());
    if (!longer)
        throw std::bad_alloc();
    (void)headers_.release(); // the list's first item stays the same
    headers_.reset(longer);
}

void Transfer::prepare(Request request) {
    curl_.easy_reset(easy_.get()); // keeps the connection
    request_ = std::move(request);
    reply_ = {};
    sent_ = 0;
    error_[0] = '\0';
    headers_.reset();
    add_header("Expect:"); // send at once
    add_header("Content-Type: application/json");
    // The gateway passes this on to etcd, which then answers "no leader" at once, and ends watches that lost theirs.
    add_header("Grpc-Metadata-hasleader: true");
    if (!request_.token.empty())
        add_header("Authorization: " + request_.token);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_USERAGENT, "kvmserver");
    set(CURLOPT_ERRORBUFFER, error_);
    set(CURLOPT_OPENSOCKETFUNCTION, open_closed_on_exec);
    set(CURLOPT_PROXY, ""); // whatever http_proxy says: its answers are not etcd's
    set(CURLOPT_URL, request_.url.c_str());
    set(CURLOPT_HTTPHEADER, headers_.get());
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(limits_.connect.count()));
    if (!request_.endless)
        set(CURLOPT_TIMEOUT_MS, static_cast<long>(limits_.request.count()));
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    set(CURLOPT_TCP_KEEPIDLE, kKeepIdle);
    set(CURLOPT_TCP_KEEPINTVL, kKeepInterval);
    remote::use_authorities(curl_, easy_.get(), request_.ca_file);
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request_.body.size()));
    // Not POSTFIELDS: libcurl would send them again by itself when a kept connection breaks before the answer. So it
    // can only if it can seek.
    set(CURLOPT_READFUNCTION, on_send);
    set(CURLOPT_READDATA, this);
    if (request_.repeatable) {
        set(CURLOPT_SEEKFUNCTION, on_seek);
        set(CURLOPT_SEEKDATA, this);
    }
    set(CURLOPT_WRITEFUNCTION, on_body);
    set(CURLOPT_WRITEDATA, this);
}

Reply Transfer::finish(CURLcode result) {
    long status = 0;
    curl_.easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &status);
    if (result == CURLE_OK || reply_.too_long)
        reply_.status = status;
    else
        reply_.why = error_[0] ? error_ : curl_.easy_strerror(result);
    return std::move(reply_);
}

Reply Transfer::perform(Request request) {
    prepare(std::move(request));
    return finish(curl_.easy_perform(easy_.get()));
}

// No exception may cross libcurl's frames.
std::size_t Transfer::on_body(char* data, std::size_t, std::size_t size, void* user) {
    auto& self = *static_cast<Transfer*>(user);
    long status = 0;
    self.curl_.easy_getinfo(self.easy_.get(), CURLINFO_RESPONSE_CODE, &status);
    if (self.request_.take && status == kOk)
        return self.request_.take({data, size}) ? size : 0;
    self.reply_.too_long = self.reply_.body.size() + size > self.limits_.reply_bytes;
    if (self.reply_.too_long)
        return 0; // ends the transfer
    try {
        self.reply_.body.append(data, size);
    } catch (const std::bad_alloc&) {
        return 0;
    }
    return size;
}

std::size_t Transfer::on_send(char* to, std::size_t size, std::size_t count, void* user) {
    auto& self = *static_cast<Transfer*>(user);
    const std::string_view rest = std::string_view(self.request_.body).substr(self.sent_);
    const std::size_t some = std::min(rest.size(), size * count);
    std::memcpy(to, rest.data(), some);
    self.sent_ += some;
    self.reply_.sent = true;
    return some;
}

int Transfer::on_seek(void* user, curl_off_t offset, int origin) {
    auto& self = *static_cast<Transfer*>(user);
    if (origin != SEEK_SET || offset < 0 || static_cast<std::size_t>(offset) > self.request_.body.size())
        return CURL_SEEKFUNC_FAIL;
    self.sent_ = static_cast<std::size_t>(offset);
    return CURL_SEEKFUNC_OK;
}

} // namespace kvmserver::etcd
