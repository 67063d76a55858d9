#include "src/remote/curl.hpp"

#include <dlfcn.h>

#include <string>

#include "src/common/environment.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::remote {
namespace {

[[noreturn]] void no_curl(const std::string& why) {
    throw tinykvm::UserError(tinykvm::ExitCode::unreachable,
                             "talking to a daemon or another service needs libcurl: install libcurl4 (" + why + ")");
}

void* library() {
    for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"})
        if (void* const found = ::dlopen(name, RTLD_NOW | RTLD_LOCAL))
            return found;
    const char* const why = ::dlerror();
    no_curl(why ? why : "it cannot be loaded");
}

template <class Function>
void find(void* in, Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(in, name));
    if (!function)
        no_curl(std::string("it has no ") + name);
}

Curl load() {
    Curl curl;
    void* const from = library();
    decltype(&::curl_global_init) global_init = nullptr;
    find(from, global_init, "curl_global_init");
    find(from, curl.easy_init, "curl_easy_init");
    find(from, curl.easy_cleanup, "curl_easy_cleanup");
    find(from, curl.easy_reset, "curl_easy_reset");
    find(from, curl.easy_setopt, "curl_easy_setopt");
    find(from, curl.easy_perform, "curl_easy_perform");
    find(from, curl.easy_getinfo, "curl_easy_getinfo");
    find(from, curl.easy_strerror, "curl_easy_strerror");
    find(from, curl.slist_append, "curl_slist_append");
    find(from, curl.slist_free_all, "curl_slist_free_all");
    if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        no_curl("it does not start");
    return curl;
}

CurlMulti load_multi() {
    (void)Curl::get(); // initialises the library
    CurlMulti multi;
    void* const from = library(); // the same
    find(from, multi.init, "curl_multi_init");
    find(from, multi.cleanup, "curl_multi_cleanup");
    find(from, multi.add_handle, "curl_multi_add_handle");
    find(from, multi.remove_handle, "curl_multi_remove_handle");
    find(from, multi.perform, "curl_multi_perform");
    find(from, multi.poll, "curl_multi_poll");
    find(from, multi.wakeup, "curl_multi_wakeup");
    find(from, multi.info_read, "curl_multi_info_read");
    find(from, multi.strerror, "curl_multi_strerror");
    return multi;
}

} // namespace

const Curl& Curl::get() {
    static const Curl curl = load(); // for the rest of the process
    return curl;
}

const CurlMulti& CurlMulti::get() {
    static const CurlMulti multi = load_multi();
    return multi;
}

void use_authorities(const Curl& curl, CURL* easy, std::string file) {
    for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"})
        if (file.empty())
            file = environment_variable(name);
    if (!file.empty())
        curl.easy_setopt(easy, CURLOPT_CAINFO, file.c_str());
    if (const std::string folder = environment_variable("SSL_CERT_DIR"); file.empty() && !folder.empty())
        curl.easy_setopt(easy, CURLOPT_CAPATH, folder.c_str());
}

} // namespace kvmserver::remote
