// /ui: the web page. Its four files hold no data and need no token; the scripts get their data from /v1.
#include <string_view>

#include "src/admin/handlers.hpp"

extern "C" {
extern const char kvmserver_ui_html[], kvmserver_ui_html_end[];
extern const char kvmserver_ui_js[], kvmserver_ui_js_end[];
extern const char kvmserver_ui_charts[], kvmserver_ui_charts_end[];
extern const char kvmserver_ui_css[], kvmserver_ui_css_end[];
}

namespace kvmserver::admin {
namespace {

// Only these files may run, requests go only to our origin, and no page may frame ours. The icon is a data: URL.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri "
    "'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

void reply_file(Call& call, const char* type, const char* begin, const char* end) {
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
void ui_charts(Call& call) {
    reply_file(call, "text/javascript; charset=utf-8", kvmserver_ui_charts, kvmserver_ui_charts_end);
}
void ui_style(Call& call) { reply_file(call, "text/css; charset=utf-8", kvmserver_ui_css, kvmserver_ui_css_end); }

} // namespace kvmserver::admin
