#include "src/daemon/outputs.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "src/common/clock.hpp"
#include "src/daemon/output_source.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using tinykvm::throw_errno;

namespace {

constexpr std::uint64_t kPauseNs = 2'000'000; // before a pipe that prints too much is read again

constexpr std::uint64_t kReportNs = 1'000'000'000; // before dropped lines are reported if nothing more is printed

// One-shot: a pipe that had its turn is armed again.
void ask(int epoll, int operation, std::uint64_t id, int fd) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLONESHOT;
    event.data.u64 = id;
    if (::epoll_ctl(epoll, operation, fd, &event) < 0)
        throw_errno("epoll_ctl");
}

} // namespace

Outputs::Outputs(std::uint64_t bytes_a_second, std::function<void(LogLine)> on_line)
    : bytes_a_second_(bytes_a_second), on_line_(std::move(on_line)), epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!epoll_ || !wake_)
        throw_errno("epoll");
    ask(epoll_.get(), EPOLL_CTL_ADD, 0, wake_.get());
    thread_ = std::thread([this] { loop(); });
}

Outputs::~Outputs() {
    ending_ = true;
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof(one));
    thread_.join();
}

std::shared_ptr<Outputs::Rate> Outputs::rate_of(const std::string& function) {
    const std::uint64_t now = now_ns();
    std::erase_if(rates_,
                  [now](const auto& entry) { return entry.second.use_count() == 1 && entry.second->full(now); });
    auto& rate = rates_[function];
    if (!rate)
        rate = std::make_shared<Rate>(bytes_a_second_, now);
    return rate;
}

std::shared_ptr<Outputs::Source> Outputs::add(const std::string& function, std::uint64_t version, int out, int errors) {
    const std::lock_guard lock(mutex_);
    auto source = std::make_shared<Source>(*this, function, version, rate_of(function), out, errors);
    for (std::size_t stream = 0; stream < 2; ++stream) {
        source->ids_[stream] = next_id_++;
        sources_[source->ids_[stream]] = source;
        try {
            ask(epoll_.get(), EPOLL_CTL_ADD, source->ids_[stream], source->streams_[stream].fd);
        } catch (const std::exception&) {
            for (std::size_t each = 0; each <= stream; ++each)
                sources_.erase(source->ids_[each]);
            throw;
        }
    }
    return source;
}

void Outputs::remove(Source& source) {
    const std::lock_guard lock(mutex_);
    for (std::size_t stream = 0; stream < 2; ++stream) {
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, source.streams_[stream].fd, nullptr);
        sources_.erase(source.ids_[stream]);
    }
}

void Outputs::loop() {
    std::multimap<std::uint64_t, std::uint64_t> later; // sources to read again, by time
    std::vector<std::uint64_t> more;                   // ids of streams that were not read to the end
    while (!ending_) {
        std::array<epoll_event, 64> events;
        int patience_ms = more.empty() ? -1 : 0;
        if (more.empty() && !later.empty()) {
            const std::uint64_t now = now_ns(), next = later.begin()->first;
            patience_ms = next <= now ? 0 : static_cast<int>((next - now) / 1'000'000 + 1);
        }
        const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), patience_ms);
        std::vector<std::uint64_t> wanted = std::exchange(more, {});
        for (int i = 0; i < count; ++i) {
            const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64; // a copy: the structure is packed
            wanted.push_back(id);
        }
        for (const std::uint64_t now = now_ns(); !later.empty() && later.begin()->first <= now;
             later.erase(later.begin()))
            wanted.push_back(later.begin()->second);
        for (const std::uint64_t id : wanted) {
            std::shared_ptr<Source> source;
            {
                const std::lock_guard lock(mutex_);
                if (const auto found = sources_.find(id); found != sources_.end())
                    source = found->second;
            }
            if (!source)
                continue;
            const std::size_t stream = id == source->ids_[0] ? 0 : 1;
            const std::lock_guard turn(source->turn_);
            if (source->finished_)
                continue;
            const Source::Turn came = source->read(stream);
            if (came == Source::Turn::pause)
                later.emplace(now_ns() + kPauseNs, id);
            else if (came == Source::Turn::more)
                more.push_back(id);
            else if (came == Source::Turn::wait)
                ask(epoll_.get(), EPOLL_CTL_MOD, id, source->streams_[stream].fd);
            if (came == Source::Turn::wait && source->has_to_tell())
                later.emplace(now_ns() + kReportNs, id);
        }
    }
}

} // namespace kvmserver::daemon
