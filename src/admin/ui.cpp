// /ui: the web page. Its files hold no data and need no token; the scripts get their data from /v1.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "src/admin/handlers.hpp"
#include "src/store/errors.hpp"
#include "tinykvm/base/text.hpp"

// In ui/embed.S.
extern "C" {
extern const char kvmserver_ui_html[], kvmserver_ui_html_end[];
extern const char kvmserver_ui_css[], kvmserver_ui_css_end[];
extern const char kvmserver_ui_about[], kvmserver_ui_about_end[];
extern const char kvmserver_ui_addresses[], kvmserver_ui_addresses_end[];
extern const char kvmserver_ui_api[], kvmserver_ui_api_end[];
extern const char kvmserver_ui_app[], kvmserver_ui_app_end[];
extern const char kvmserver_ui_charts[], kvmserver_ui_charts_end[];
extern const char kvmserver_ui_dialog[], kvmserver_ui_dialog_end[];
extern const char kvmserver_ui_failures[], kvmserver_ui_failures_end[];
extern const char kvmserver_ui_invoke[], kvmserver_ui_invoke_end[];
extern const char kvmserver_ui_logs[], kvmserver_ui_logs_end[];
extern const char kvmserver_ui_page[], kvmserver_ui_page_end[];
extern const char kvmserver_ui_traffic[], kvmserver_ui_traffic_end[];
extern const char kvmserver_ui_values[], kvmserver_ui_values_end[];
extern const char kvmserver_ui_versions[], kvmserver_ui_versions_end[];
}

namespace kvmserver::admin {
namespace {

constexpr const char* kScript = "text/javascript; charset=utf-8";

struct File {
    std::string_view name;
    const char* type;
    const char *begin, *end;
};

constexpr File kPage{"", "text/html; charset=utf-8", kvmserver_ui_html, kvmserver_ui_html_end};
constexpr File kFiles[] = {
    {"style.css", "text/css; charset=utf-8", kvmserver_ui_css, kvmserver_ui_css_end},
    {"about.js", kScript, kvmserver_ui_about, kvmserver_ui_about_end},
    {"addresses.js", kScript, kvmserver_ui_addresses, kvmserver_ui_addresses_end},
    {"api.js", kScript, kvmserver_ui_api, kvmserver_ui_api_end},
    {"app.js", kScript, kvmserver_ui_app, kvmserver_ui_app_end},
    {"charts.js", kScript, kvmserver_ui_charts, kvmserver_ui_charts_end},
    {"dialog.js", kScript, kvmserver_ui_dialog, kvmserver_ui_dialog_end},
    {"failures.js", kScript, kvmserver_ui_failures, kvmserver_ui_failures_end},
    {"invoke.js", kScript, kvmserver_ui_invoke, kvmserver_ui_invoke_end},
    {"logs.js", kScript, kvmserver_ui_logs, kvmserver_ui_logs_end},
    {"page.js", kScript, kvmserver_ui_page, kvmserver_ui_page_end},
    {"traffic.js", kScript, kvmserver_ui_traffic, kvmserver_ui_traffic_end},
    {"values.js", kScript, kvmserver_ui_values, kvmserver_ui_values_end},
    {"versions.js", kScript, kvmserver_ui_versions, kvmserver_ui_versions_end},
};

// Only these files may run, requests go only to our origin, and no page may frame ours. The icon is a data: URL.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri "
    "'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

void reply_file(Call& call, const File& file) {
    call.reply_bytes(200, std::string_view(file.begin, static_cast<std::size_t>(file.end - file.begin)),
                     {{"Content-Type", file.type},
                      {"Content-Security-Policy", kPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cross-Origin-Resource-Policy", "same-origin"},
                      {"Cache-Control", "no-cache"}}); // the next daemon may be another version
}

} // namespace

void ui_page(Call& call) { reply_file(call, kPage); }

void ui_file(Call& call) {
    const std::string& name = call.param("file");
    const auto* const file = std::ranges::find(kFiles, name, &File::name);
    if (file == std::end(kFiles))
        throw store::NotFound(fmt::format("the page has no file \"{}\"", tinykvm::brief(name)));
    reply_file(call, *file);
}

} // namespace kvmserver::admin
