// One HTTP request at a time, by libcurl. It keeps the connection for the next.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "src/etcd/limits.hpp"
#include "src/remote/curl.hpp"

namespace kvmserver::etcd {

struct Request {
    std::string url;
    std::string body;  // JSON
    std::string token; // of Authorization; "": none
    std::string ca_file;
    // Whether it may be sent again on a new connection, if a kept one breaks.
    bool repeatable = false;
    // For a stream: takes the body of a reply with status 200 in pieces, however long it is. False ends the transfer.
    // Must not throw. Empty: the body goes into the reply.
    std::function<bool(std::string_view)> take = {};
    bool endless = false; // no time limit after the connection stands
};

struct Reply {
    long status = 0; // 0: none came
    std::string body;
    std::string why;       // there is none
    bool sent = false;     // some of the request's body: it may have been executed
    bool too_long = false; // the body is longer than Limits::reply_bytes, and cut
};

class Transfer {
public:
    explicit Transfer(const Limits& limits);
    Transfer(const Transfer&) = delete; // libcurl has its address
    Transfer& operator=(const Transfer&) = delete;

    Reply perform(Request request); // blocks
    // The same in parts, for curl_multi: `result` is of the transfer of easy().
    void prepare(Request request);
    Reply finish(CURLcode result);
    CURL* easy() const { return easy_.get(); }

private:
    static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* user);
    static std::size_t on_send(char* to, std::size_t size, std::size_t count, void* user);
    static int on_seek(void* user, curl_off_t offset, int origin);
    template <class Value>
    void set(CURLoption option, Value value) {
        curl_.easy_setopt(easy_.get(), option, value);
    }
    void add_header(const std::string& line);

    const remote::Curl& curl_;
    const Limits limits_;
    std::unique_ptr<curl_slist, decltype(remote::Curl::slist_free_all)> headers_; // outlives easy_, which points to it
    std::unique_ptr<CURL, decltype(remote::Curl::easy_cleanup)> easy_;
    Request request_;
    std::size_t sent_ = 0; // bytes of the request's body
    Reply reply_;
    char error_[CURL_ERROR_SIZE] = "";
};

} // namespace kvmserver::etcd
