#include "src/cli/options/warmup_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "src/cli/small_file.hpp"
#include "src/http/fields.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::cli {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr std::size_t kMaxRequests = 64;    // of which each is tried several times before the snapshot
constexpr std::uint64_t kMaxFile = 1 << 20; // bytes
constexpr std::size_t kShown = 64;          // of a wrong word
constexpr std::string_view kSeparator = "###";
constexpr std::string_view kOurs[] = {"Connection", "Content-Length", "Transfer-Encoding"};

class Parser {
public:
    Parser(std::string_view text, const std::string& name) : left_(text), name_(name) {}

    std::vector<WarmupRequest> all() {
        std::vector<WarmupRequest> requests;
        for (next(); line_;) {
            if (const auto request = one()) {
                if (requests.size() == kMaxRequests)
                    fail(fmt::format("more than {} requests; leave some out", kMaxRequests));
                requests.push_back(*request);
            }
        }
        if (requests.empty())
            throw UserError(ExitCode::usage, fmt::format("{}: has no request; write one, as GET /path", name_));
        return requests;
    }

private:
    // The next line, without its end; nothing at the end of the file.
    void next() {
        if (left_.empty()) {
            line_.reset();
            return;
        }
        const std::size_t end = left_.find('\n');
        line_ = left_.substr(0, end);
        left_.remove_prefix(end == left_.npos ? left_.size() : end + 1);
        if (line_->ends_with('\r'))
            line_->remove_suffix(1);
        ++number_;
    }

    bool separates() const { return line_->starts_with(kSeparator); }
    bool comments() const { return line_->starts_with('#') || line_->starts_with("//"); }

    // Up to the next separator or the end. Nothing if only comments are there.
    std::optional<WarmupRequest> one() {
        if (separates())
            next();
        while (line_ && !separates() && (http::trimmed(*line_).empty() || comments()))
            next();
        if (!line_ || separates())
            return std::nullopt;
        WarmupRequest request;
        request_line(request);
        for (next(); line_ && !separates() && !http::trimmed(*line_).empty(); next())
            if (!comments())
                field(request);
        if (line_ && !separates())
            body(request);
        return request;
    }

    void request_line(WarmupRequest& request) {
        std::string_view line = http::trimmed(*line_);
        no_variables(line);
        if (const std::size_t space = line.find(' '); space != line.npos) {
            request.method = line.substr(0, space);
            line = http::trimmed(line.substr(space));
        }
        if (line.ends_with(" HTTP/1.1"))
            line = http::trimmed(line.substr(0, line.rfind(' ')));
        if (!http::is_token(request.method) ||
            std::ranges::any_of(request.method, [](char c) { return c >= 'a' && c <= 'z'; }))
            fail(fmt::format("'{}' is no method; write GET, POST ... before the path",
                             tinykvm::printable(request.method, kShown)));
        if (request.method == "CONNECT")
            fail("CONNECT is not for warm-up requests");
        const std::size_t scheme = line.find("://");
        if (scheme != line.npos && scheme < line.find('/')) {
            const std::string_view rest = line.substr(scheme + 3);
            const std::size_t path = rest.find('/');
            request.fields = fmt::format("Host: {}\r\n", rest.substr(0, path));
            request.target = path == rest.npos ? "/" : rest.substr(path);
        } else {
            request.target = line;
        }
        if (const std::string_view wrong = wrong_with_target(request.target); !wrong.empty())
            fail(fmt::format("'{}' {}", tinykvm::printable(request.target, kShown), wrong));
    }

    void field(WarmupRequest& request) {
        no_variables(*line_);
        const std::size_t colon = line_->find(':');
        if (colon == line_->npos || !http::is_token(line_->substr(0, colon)))
            fail("a header is NAME: VALUE; an empty line stands before the body, ### before the next request");
        const std::string_view name = line_->substr(0, colon), value = http::trimmed(line_->substr(colon + 1));
        if (std::ranges::any_of(kOurs, [&](std::string_view ours) { return http::equal_nocase(ours, name); }))
            fail(fmt::format("{} is written by kvmserver; leave it out", name));
        if (std::ranges::any_of(value, [](unsigned char c) { return (c < ' ' && c != '\t') || c == 0x7f; }))
            fail(fmt::format("the value of {} has a control character", name));
        if (http::equal_nocase(name, "Host"))
            request.fields.clear(); // of the URL
        request.fields += fmt::format("{}: {}\r\n", name, value);
    }

    // Without the line ends before the next separator.
    void body(WarmupRequest& request) {
        for (next(); line_ && !separates(); next()) {
            if (line_->starts_with("< ") || line_->starts_with("<@") || line_->starts_with("> "))
                fail("bodies from files and scripts are not read; write the body here");
            request.body.append(*line_).append("\n");
        }
        request.body.erase(request.body.find_last_not_of('\n') + 1);
    }

    void no_variables(std::string_view line) const {
        if (line.find("{{") != line.npos)
            fail("variables are not known here; write the value");
    }

    [[noreturn]] void fail(const std::string& what) const {
        throw UserError(ExitCode::usage, fmt::format("{}:{}: {}", name_, number_, what));
    }

    std::string_view left_;
    const std::string& name_;
    std::optional<std::string_view> line_;
    std::size_t number_ = 0;
};

} // namespace

std::string_view wrong_with_target(std::string_view target) {
    if (!target.starts_with('/'))
        return "must start with '/'";
    if (std::ranges::any_of(target, [](unsigned char c) { return c <= ' ' || c == 0x7f; }))
        return "must not hold spaces or control characters";
    return "";
}

std::vector<WarmupRequest> parse_warmup_requests(std::string_view text, const std::string& name) {
    return Parser(text, name).all();
}

std::vector<WarmupRequest> read_warmup_requests(const std::string& path) {
    return parse_warmup_requests(read_small_file(path, kMaxFile, "requests"), path);
}

} // namespace kvmserver::cli
