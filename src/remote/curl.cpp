#include "src/remote/curl.hpp"

#include <dlfcn.h>

#include <string>

#include "src/common/environment.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::remote {
namespace {

[[noreturn]] void no_curl(const std::string& why) {
    throw tinykvm::UserError(tinykvm::ExitCode::unreachable,
                             "talking to a daemon or a collector needs libcurl: install libcurl4 (" + why + ")");
}

Curl load() {
    void* library = nullptr;
    for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"})
        if ((library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)))
            break;
    if (!library) {
        const char* const why = ::dlerror();
        no_curl(why ? why : "it cannot be loaded");
    }
    Curl curl;
    const auto find = [&](auto& function, const char* name) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
        if (!function)
            no_curl(std::string("it has no ") + name);
    };
    decltype(&::curl_global_init) global_init = nullptr;
    find(global_init, "curl_global_init");
    find(curl.easy_init, "curl_easy_init");
    find(curl.easy_cleanup, "curl_easy_cleanup");
    find(curl.easy_reset, "curl_easy_reset");
    find(curl.easy_setopt, "curl_easy_setopt");
    find(curl.easy_perform, "curl_easy_perform");
    find(curl.easy_getinfo, "curl_easy_getinfo");
    find(curl.easy_strerror, "curl_easy_strerror");
    find(curl.slist_append, "curl_slist_append");
    find(curl.slist_free_all, "curl_slist_free_all");
    if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        no_curl("it does not start");
    return curl;
}

} // namespace

const Curl& Curl::get() {
    static const Curl curl = load(); // for the rest of the process
    return curl;
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
