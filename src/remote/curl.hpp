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

// Whose certificates are trusted: those of `file`, or, if that is "", of the variables of the curl program, which
// libcurl itself ignores.
void use_authorities(const Curl& curl, CURL* easy, std::string file);

} // namespace kvmserver::remote
