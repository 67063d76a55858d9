#include "src/etcd/watch_reply.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace kvmserver::etcd {
namespace {

constexpr long kStreamStatus = 200; // was sent before any error

// Why etcd cancelled a watch: "rpc error: code = PermissionDenied desc = etcdserver: permission denied".
ErrorReply reason_in(const Json& result) {
    constexpr std::string_view kBefore = " desc = ";
    const std::string reason = text_in(result, "cancel_reason");
    const auto at = reason.find(kBefore);
    const std::string text = brief(at == reason.npos ? reason : std::string_view(reason).substr(at + kBefore.size()));
    return {text.empty() ? "etcd cancelled the watch" : text, 0};
}

Event event_in(const Json& json, const std::string& prefix) {
    Event event{entry_in(object_in(json, "kv"), prefix), false};
    const std::string type = text_in(json, "type"); // PUT is 0, and left out
    event.deleted = type == "DELETE";
    if (!event.deleted && !type.empty() && type != "PUT")
        throw BadReply("an event of another type");
    return event;
}

} // namespace

bool Lines::add(std::string_view piece) {
    if (at_ > 0 && at_ >= text_.size() / 2) { // moves less than it took
        text_.erase(0, at_);
        scanned_ -= at_;
        at_ = 0;
    }
    text_ += piece;
    return text_.size() - at_ <= longest_ || text_.find('\n', scanned_) != text_.npos;
}

std::optional<std::string> Lines::next() {
    for (;;) {
        const auto end = text_.find('\n', scanned_);
        if (end == text_.npos) {
            scanned_ = text_.size();
            return std::nullopt;
        }
        std::string line = text_.substr(at_, end - at_);
        at_ = scanned_ = end + 1;
        if (!line.empty())
            return line;
    }
}

std::optional<Batch> WatchReader::batch_up_to(std::int64_t revision) {
    if (revision <= told_)
        return std::nullopt;
    const auto end =
        std::ranges::find_if(held_, [&](const Event& event) { return event.entry.changed > revision; }) - held_.begin();
    Batch batch{revision, {}};
    batch.events.assign(std::make_move_iterator(held_.begin()), std::make_move_iterator(held_.begin() + end));
    held_.erase(held_.begin(), held_.begin() + end);
    told_ = revision;
    return batch;
}

WatchReader::Line WatchReader::read(std::string_view line) {
    Line out;
    const Json json = parse_reply(line);
    if (json.contains("error")) {
        out.error = error_in(line, kStreamStatus);
        return out;
    }
    const Json& result = object_in(json, "result");
    if (flag_in(result, "canceled")) {
        out.compacted = number_in(result, "compact_revision") > 0;
        if (!out.compacted)
            out.error = reason_in(result);
        return out;
    }
    if (flag_in(result, "created")) // its revision says nothing of what is yet to be told
        return out;
    const Json& list = list_in(result, "events");
    for (const Json& each : list) {
        Event event = event_in(each, prefix_);
        if (event.entry.changed < (held_.empty() ? 1 : held_.back().entry.changed))
            throw BadReply("events that are not in order");
        if (event.entry.changed > told_) // else etcd repeats itself
            held_.push_back(std::move(event));
    }
    if (list.empty()) // its progress: all changes up to there were sent
        out.batch = batch_up_to(revision_in(result));
    else if (!held_.empty())
        // The revision of the reply is of the store, and may be ahead of what it has sent.
        out.batch = batch_up_to(held_.back().entry.changed - (flag_in(result, "fragment") ? 1 : 0));
    return out;
}

} // namespace kvmserver::etcd
