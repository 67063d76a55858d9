// libcurl, loaded when it is first needed: commands that talk to no server do not pay for it.
#pragma once
#include <curl/curl.h>

#include <string>

namespace kvmserver::remote {

struct Curl {
    decltype(&::curl_easy_init) easy_init = nullptr;
    decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
    decltype(&::curl_easy_reset) easy_reset = nullptr;
    decltype(&::curl_easy_setopt) easy_setopt = nullptr;
    decltype(&::curl_easy_perform) easy_perform = nullptr;
    decltype(&::curl_easy_getinfo) easy_getinfo = nullptr;
    decltype(&::curl_easy_strerror) easy_strerror = nullptr;
    decltype(&::curl_slist_append) slist_append = nullptr;
    decltype(&::curl_slist_free_all) slist_free_all = nullptr;

    // Throws UserError (unreachable) if this host has no libcurl.
    static const Curl& get();
};

// Several transfers on one thread, which another thread can wake up. Since libcurl 7.68.
struct CurlMulti {
    decltype(&::curl_multi_init) init = nullptr;
    decltype(&::curl_multi_cleanup) cleanup = nullptr;
    decltype(&::curl_multi_add_handle) add_handle = nullptr;
    decltype(&::curl_multi_remove_handle) remove_handle = nullptr;
    decltype(&::curl_multi_perform) perform = nullptr;
    decltype(&::curl_multi_poll) poll = nullptr;
    decltype(&::curl_multi_wakeup) wakeup = nullptr;
    decltype(&::curl_multi_info_read) info_read = nullptr;
    decltype(&::curl_multi_strerror) strerror = nullptr;

    // Throws UserError (unreachable) if this host has no libcurl, or an older one.
    static const CurlMulti& get();
};

// Whose certificates are trusted: those of `file`, or, if that is "", of the variables of the curl program, which
// libcurl itself ignores.
void use_authorities(const Curl& curl, CURL* easy, std::string file);

} // namespace kvmserver::remote
