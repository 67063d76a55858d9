#include "src/etcd/watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "src/etcd/base64.hpp"
#include "src/etcd/session.hpp"
#include "src/etcd/watch_reply.hpp"

namespace kvmserver::etcd {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr long kDone = 200;

} // namespace

// curl_multi with wakeups. A transfer is removed before it is destroyed.
class Watch::Multi {
public:
    Multi() : curl_(remote::CurlMulti::get()), multi_(curl_.init(), curl_.cleanup) {
        if (!multi_)
            throw std::bad_alloc();
    }
    void add(const Transfer& transfer) { sound(curl_.add_handle(multi_.get(), transfer.easy())); }
    void remove(const Transfer& transfer) { curl_.remove_handle(multi_.get(), transfer.easy()); }
    // Does what can be done at once.
    void perform() {
        int running = 0;
        sound(curl_.perform(multi_.get(), &running));
    }
    // Waits for sockets, for times that libcurl knows, and for wake_up().
    void wait(milliseconds longest) {
        sound(curl_.poll(multi_.get(), nullptr, 0, static_cast<int>(longest.count()), nullptr));
    }
    void wake_up() { curl_.wakeup(multi_.get()); }
    struct Ended {
        const CURL* easy;
        CURLcode result;
    };
    std::optional<Ended> next_ended() {
        int left = 0;
        while (const CURLMsg* const message = curl_.info_read(multi_.get(), &left))
            if (message->msg == CURLMSG_DONE)
                return Ended{message->easy_handle, message->data.result};
        return std::nullopt;
    }

private:
    void sound(CURLMcode code) {
        if (code != CURLM_OK)
            throw Away(fmt::format("libcurl: {}", curl_.strerror(code)), false);
    }
    const remote::CurlMulti& curl_;
    std::unique_ptr<CURLM, decltype(remote::CurlMulti::cleanup)> multi_;
};

// One call of follow(), on one endpoint.
class Watch::Run {
public:
    Run(Watch& watch, std::int64_t from)
        : watch_(watch), session_(watch.client_.session()), multi_(*watch.multi_),
          endpoint_(session_.address().endpoints[watch.endpoint_]), reader_(session_.address().prefix, from),
          stream_(session_.limits()), other_(session_.limits()) {}
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
    ~Run() {
        stop_stream();
        stop_other();
    }

    End follow(const std::function<void(Batch)>& take);
    const std::exception_ptr& thrown() const { return thrown_; }

private:
    enum class Next { go_on, log_in, end };

    void start_stream();
    void stop_stream() {
        if (std::exchange(streaming_, false))
            multi_.remove(stream_);
    }
    void start_other(Request request);
    void stop_other() {
        if (std::exchange(asking_, false))
            multi_.remove(other_);
    }
    std::optional<Reply> wait_for_other(); // nullopt: to be stopped
    std::optional<Reply> perform();        // the reply to the other request, if it came just now
    void wait_a_while();
    Next take_lines(const std::function<void(Batch)>& take);
    Next take_end();
    Next take_error(const ErrorReply& error);
    bool still_serves(const Reply& reply);
    bool stopping() const { return watch_.stopping_; }
    Next over(End end, const std::string& why) {
        end_ = end;
        watch_.why_ = fmt::format("etcd at {}: {}", endpoint_, why);
        return Next::end;
    }

    Watch& watch_;
    Session& session_;
    Multi& multi_;
    const std::string endpoint_;
    std::string token_;
    bool logged_in_ = false; // in this run
    WatchReader reader_;
    std::optional<Lines> lines_;
    Transfer stream_, other_; // other_: a login, or the question whether the endpoint still serves
    bool streaming_ = false, asking_ = false;
    bool too_long_ = false;
    std::optional<Reply> ended_; // the stream
    Clock::time_point heard_;    // when something last came from the stream, or it began
    Clock::time_point checked_;  // when the endpoint last said that it serves
    End end_ = End::broken;
    std::exception_ptr thrown_; // by follow()'s `take`
};

void Watch::Run::start_stream() {
    const std::string& prefix = session_.address().prefix;
    const Json body{{"create_request",
                     {{"key", to_base64(prefix)},
                      {"range_end", to_base64(end_of_prefix(prefix))},
                      {"start_revision", std::to_string(reader_.told() + 1)},
                      {"progress_notify", true},
                      {"fragment", true}}}};
    lines_.emplace(session_.limits().reply_bytes);
    ended_.reset();
    Request request = session_.request(endpoint_, "/v3/watch", body, Repeat::no, token_);
    request.endless = true;
    request.take = [this](std::string_view piece) {
        try {
            too_long_ = !lines_->add(piece);
        } catch (const std::bad_alloc&) {
            too_long_ = true;
        }
        heard_ = Clock::now();
        return !too_long_;
    };
    stream_.prepare(std::move(request));
    multi_.add(stream_);
    streaming_ = true;
    heard_ = checked_ = Clock::now();
}

void Watch::Run::start_other(Request request) {
    other_.prepare(std::move(request));
    multi_.add(other_);
    asking_ = true;
}

std::optional<Reply> Watch::Run::perform() {
    std::optional<Reply> answer;
    multi_.perform();
    while (const auto ended = multi_.next_ended()) {
        if (streaming_ && ended->easy == stream_.easy()) {
            stop_stream();
            ended_ = stream_.finish(ended->result);
        } else if (asking_ && ended->easy == other_.easy()) {
            stop_other();
            answer = other_.finish(ended->result);
        }
    }
    return answer;
}

std::optional<Reply> Watch::Run::wait_for_other() {
    while (!stopping()) {
        if (auto reply = perform())
            return reply;
        multi_.wait(session_.limits().request); // libcurl knows when its time is over
    }
    return std::nullopt;
}

// Until something comes, or the next question is due.
void Watch::Run::wait_a_while() {
    const auto& limits = session_.limits();
    const auto due = asking_ ? Clock::now() + limits.request : std::max(heard_, checked_) + limits.watch_check;
    const auto left = std::chrono::ceil<milliseconds>(std::min(due, heard_ + limits.watch_silence) - Clock::now());
    if (left.count() > 0)
        multi_.wait(left);
}

Watch::Run::Next Watch::Run::take_error(const ErrorReply& error) {
    // Some versions of etcd say "permission denied", too, if a token is no longer valid.
    if (error.is_about_permission() && session_.has_credentials() && !logged_in_)
        return Next::log_in;
    if (error.is_about_permission())
        session_.fail(endpoint_, error, Repeat::yes);
    return over(End::broken, error.text);
}

Watch::Run::Next Watch::Run::take_lines(const std::function<void(Batch)>& take) {
    bool took = false;
    while (const auto text = lines_->next()) {
        WatchReader::Line line = reader_.read(*text);
        if (line.compacted)
            return over(End::compacted, "it has compacted the history");
        if (line.error)
            return take_error(*line.error);
        if (line.batch) {
            stop_other(); // `take` may last longer than it may
            try {
                take(std::move(*line.batch));
            } catch (...) { // no error of ours, whatever it is
                thrown_ = std::current_exception();
                return Next::end;
            }
            took = true;
        }
        if (stopping()) {
            end_ = End::stopped;
            return Next::end;
        }
    }
    if (took)
        heard_ = Clock::now();
    return Next::go_on;
}

Watch::Run::Next Watch::Run::take_end() {
    if (ended_->status == 0)
        return over(End::broken, ended_->why);
    // The gateway writes an error in the middle of a stream without an end of the line.
    const std::string_view last = ended_->status == kDone ? lines_->rest() : std::string_view(ended_->body);
    if (ended_->status == kDone && last.empty())
        return over(End::broken, "it ended the watch");
    return take_error(error_in(last, ended_->status));
}

bool Watch::Run::still_serves(const Reply& reply) {
    checked_ = Clock::now();
    if (reply.status == 0) {
        over(End::broken, reply.why);
        return false;
    }
    if (reply.status != kDone) {
        const ErrorReply error = error_in(reply.body, reply.status);
        if (error.is_away())
            over(End::broken, error.text);
        return !error.is_away(); // a token that has become invalid does not end a watch
    }
    // The question is linearizable, so it sees all that was told.
    if (revision_in(parse_reply(reply.body)) >= reader_.told())
        return true;
    over(End::compacted, "its revision has gone back: another store, or one that was restored");
    return false;
}

Watch::End Watch::Run::follow(const std::function<void(Batch)>& take) {
    const auto& limits = session_.limits();
    token_ = session_.token();
    start_stream();
    while (!stopping()) {
        const auto answer = perform();
        Next next = take_lines(take);
        if (next == Next::go_on && too_long_)
            next = over(End::broken, fmt::format("a line of its watch is longer than {} bytes", limits.reply_bytes));
        if (next == Next::go_on && ended_)
            next = take_end();
        if (next == Next::log_in) {
            stop_stream();
            stop_other();
            start_other(session_.login_request(endpoint_));
            const auto reply = wait_for_other();
            if (!reply)
                break;
            token_ = session_.take_login(endpoint_, *reply);
            logged_in_ = true;
            start_stream();
            continue;
        }
        if (next == Next::end || (answer && !still_serves(*answer)))
            return end_;
        const auto now = Clock::now();
        if (now >= heard_ + limits.watch_silence) {
            over(End::broken, "the watch is silent, though it should tell its progress");
            return end_;
        }
        if (!asking_ && now >= std::max(heard_, checked_) + limits.watch_check) {
            const Json body{{"key", to_base64(session_.address().prefix)}, {"keys_only", true}}; // there is none: cheap
            start_other(session_.request(endpoint_, "/v3/kv/range", body, Repeat::yes, session_.token()));
            continue;
        }
        wait_a_while();
    }
    return End::stopped;
}

Watch::Watch(Client& client)
    : client_(client), multi_(std::make_unique<Multi>()), endpoint_(client.session().current()) {}
Watch::~Watch() = default;

Watch::End Watch::follow(std::int64_t from, const std::function<void(Batch)>& take) {
    why_.clear();
    const auto& endpoints = client_.address().endpoints;
    End end = End::broken;
    std::exception_ptr thrown;
    try {
        Run run(*this, from);
        end = run.follow(take);
        thrown = run.thrown();
    } catch (const BadReply& bad) {
        why_ = fmt::format("etcd at {}: it answers {}", endpoints[endpoint_], bad.what());
    } catch (const Away& away) {
        why_ = away.what();
    }
    if (thrown)
        std::rethrow_exception(thrown);
    if (end == End::broken)
        endpoint_ = (endpoint_ + 1) % endpoints.size();
    return end;
}

void Watch::stop() {
    stopping_ = true;
    multi_->wake_up();
}

} // namespace kvmserver::etcd
