// /ui: the web page, three files that hold no data and so need no token. What they show they ask of /v1.
#include <string_view>

#include "src/admin/handlers.hpp"

extern "C" {
extern const char kvmserver_ui_html[], kvmserver_ui_html_end[];
extern const char kvmserver_ui_js[], kvmserver_ui_js_end[];
extern const char kvmserver_ui_css[], kvmserver_ui_css_end[];
}

namespace kvmserver::admin {
namespace {

// Nothing but these files runs, nothing is asked of another origin, nobody shows the page within theirs. The
// icon is data:.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri "
    "'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

void reply_file(Call& call, const char* type, const char* begin, const char* end) {
    call.only_query({});
    call.reply_bytes(200, std::string_view(begin, static_cast<std::size_t>(end - begin)),
                     {{"Content-Type", type},
                      {"Content-Security-Policy", kPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cross-Origin-Resource-Policy", "same-origin"},
                      {"Cache-Control", "no-cache"}}); // the next daemon may be another version
}

} // namespace

void ui_page(Call& call) { reply_file(call, "text/html; charset=utf-8", kvmserver_ui_html, kvmserver_ui_html_end); }
void ui_script(Call& call) { reply_file(call, "text/javascript; charset=utf-8", kvmserver_ui_js, kvmserver_ui_js_end); }
void ui_style(Call& call) { reply_file(call, "text/css; charset=utf-8", kvmserver_ui_css, kvmserver_ui_css_end); }

} // namespace kvmserver::admin
