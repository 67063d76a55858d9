#include "src/daemon/log_store.hpp"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>

#include "src/common/clock.hpp"

namespace kvmserver::daemon {

namespace {

std::int64_t wall_clock_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

std::optional<LogLine> line_from(const std::string& text) {
    const auto line_json = nlohmann::json::parse(text, nullptr, false);
    if (!line_json.is_object()) // truncated when a daemon was killed
        return std::nullopt;
    LogLine line;
    try {
        line.id = line_json.at("id").get<std::uint64_t>();
        line.ms = line_json.at("ms").get<std::int64_t>();
        line.function = line_json.at("function").get<std::string>();
        line.version = line_json.at("version").get<std::uint64_t>();
        line.stream = line_json.at("stream").get<std::string>();
        line.request_id = line_json.value("request_id", "");
        line.text = line_json.at("text").get<std::string>();
    } catch (const nlohmann::json::exception&) {
        return std::nullopt;
    }
    return line;
}

} // namespace

std::string LogLine::json() const {
    nlohmann::ordered_json out{
        {"id", id}, {"ms", ms}, {"function", function}, {"version", version}, {"stream", stream}};
    if (!request_id.empty())
        out["request_id"] = request_id;
    out["text"] = text;
    return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool LogStore::Query::matches(const LogLine& line) const {
    return (function.empty() || line.function == function) && line.ms >= since_ms && line.id > after_id &&
           (!version || line.version == *version) && (request_id.empty() || line.request_id == request_id) &&
           (!errors || line.stream != "out") && (contains.empty() || line.text.find(contains) != line.text.npos);
}

// The log files. Write errors are ignored: the lines are in memory all the same.
class LogStore::Files {
public:
    Files(std::filesystem::path folder, std::uint64_t bytes) : folder_(std::move(folder)), max_bytes_(bytes / 2) {}

    void append(const LogLine& line) {
        File& file = open_[line.function];
        if (!file.fd && !open(line.function, file))
            return;
        const std::string text = line.json() + "\n";
        const auto less = limits_.find(line.function);
        const std::uint64_t max_bytes = less == limits_.end() ? max_bytes_ : std::min(max_bytes_, less->second);
        if (text.size() > max_bytes)
            return;
        if (file.bytes + text.size() > max_bytes && file.bytes > 0) {
            std::error_code ignored;
            std::filesystem::rename(path(line.function, "current"), path(line.function, "previous"), ignored);
            if (!open(line.function, file))
                return;
        }
        if (const ssize_t n = ::write(file.fd.get(), text.data(), text.size()); n > 0)
            file.bytes += static_cast<std::uint64_t>(n);
    }

    // Enforces a lower limit: deletes the older file, and the current one when it is too large too.
    void limit(const std::string& function, std::optional<std::uint64_t> bytes) {
        const auto before = limits_.find(function);
        if (!bytes) {
            limits_.erase(function);
            return;
        }
        if (before != limits_.end() && before->second == *bytes / 2)
            return;
        limits_[function] = *bytes / 2;
        for (const char* which : {"previous", "current"}) {
            std::error_code error;
            if (std::filesystem::file_size(path(function, which), error) > *bytes / 2 && !error) {
                open_.erase(function);
                std::filesystem::remove(path(function, which), error);
            }
        }
    }

    void remove(const std::string& function) {
        open_.erase(function);
        limits_.erase(function);
        std::error_code ignored;
        std::filesystem::remove_all(folder_ / function, ignored);
    }

    std::vector<std::string> functions() const {
        std::vector<std::string> names;
        std::error_code ignored;
        for (const auto& entry : std::filesystem::directory_iterator(folder_, ignored))
            names.push_back(entry.path().filename().string());
        return names;
    }

    std::filesystem::path path(const std::string& function, const char* which) const {
        return folder_ / function / (std::string(which) + ".ndjson");
    }

private:
    struct File {
        tinykvm::UniqueFd fd;
        std::uint64_t bytes = 0;
    };
    bool open(const std::string& function, File& file) {
        std::error_code ignored;
        std::filesystem::create_directories(folder_ / function, ignored);
        ::chmod(folder_.c_str(), 0700); // the output of programs may be secret
        file.fd = tinykvm::UniqueFd(
            ::open(path(function, "current").c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
        struct stat info {};
        file.bytes = file.fd && ::fstat(file.fd.get(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
        return static_cast<bool>(file.fd);
    }

    std::filesystem::path folder_;
    std::uint64_t max_bytes_; // bytes per file
    std::map<std::string, File> open_;
    std::map<std::string, std::uint64_t> limits_; // bytes per file, for functions with less than max_bytes_
};

struct LogStore::Followers {
    std::mutex mutex;
    std::vector<Follower*> all;
};

class LogStore::Follower {
public:
    Follower(std::shared_ptr<Followers> among, Query query, std::function<void(const LogLine&)> on_line)
        : among_(std::move(among)), query_(std::move(query)), on_line_(std::move(on_line)) {
        const std::lock_guard lock(among_->mutex);
        among_->all.push_back(this);
    }
    ~Follower() {
        const std::lock_guard lock(among_->mutex);
        std::erase(among_->all, this);
    }
    Follower(const Follower&) = delete;
    Follower& operator=(const Follower&) = delete;
    void deliver(const LogLine& line) const {
        if (query_.matches(line))
            on_line_(line);
    }

private:
    std::shared_ptr<Followers> among_;
    Query query_;
    std::function<void(const LogLine&)> on_line_;
};

LogStore::LogStore(std::filesystem::path folder, const LogLimits& limits)
    : limits_(limits), files_(folder.empty() ? nullptr : std::make_unique<Files>(std::move(folder), limits.file_bytes)),
      followers_(std::make_shared<Followers>()) {}

LogStore::~LogStore() = default;

void LogStore::add(LogLine line) {
    {
        const std::lock_guard lock(mutex_);
        line.id = last_id_ = std::max(last_id_ + 1, static_cast<std::uint64_t>(wall_clock_us()));
        if (line.ms == 0)
            line.ms = now_ms();
        std::deque<LogLine>& kept = memory_[line.function];
        kept.push_back(line);
        if (kept.size() > limits_.lines)
            kept.pop_front();
        if (files_)
            files_->append(line);
    }
    const std::lock_guard lock(followers_->mutex);
    for (const Follower* follower : followers_->all)
        follower->deliver(line);
}

void LogStore::limit(const std::string& function, std::optional<std::uint64_t> bytes) {
    const std::lock_guard lock(mutex_);
    if (files_)
        files_->limit(function, bytes);
}

void LogStore::forget(const std::string& function) {
    const std::lock_guard lock(mutex_);
    memory_.erase(function);
    if (files_)
        files_->remove(function);
}

std::vector<std::string> LogStore::functions() const {
    const std::lock_guard lock(mutex_);
    return files_ ? files_->functions() : std::vector<std::string>();
}

std::vector<LogLine> LogStore::lines(const Query& query) const {
    struct Older { // a file with lines that are no longer in memory
        std::ifstream file;
        std::uint64_t before; // the first id in memory
    };
    std::vector<LogLine> found;
    std::vector<Older> older;
    {
        const std::lock_guard lock(mutex_);
        std::vector<std::string> names;
        if (!query.function.empty())
            names.push_back(query.function);
        else if (files_)
            names = files_->functions();
        else
            for (const auto& [name, lines] : memory_)
                names.push_back(name);
        for (const std::string& name : names) {
            const auto kept = memory_.find(name);
            const bool none = kept == memory_.end() || kept->second.empty();
            const std::uint64_t in_memory = none ? ~std::uint64_t{0} : kept->second.front().id;
            if (files_ && query.after_id + 1 < in_memory)
                for (const char* which : {"previous", "current"})
                    older.push_back({std::ifstream(files_->path(name, which)), in_memory});
            if (!none)
                std::copy_if(kept->second.begin(), kept->second.end(), std::back_inserter(found),
                             [&](const LogLine& line) { return query.matches(line); });
        }
    }
    // Read without the lock, since the files may be large and adding lines must not wait. The open files stay readable
    // even if they are renamed or deleted.
    for (Older& one : older)
        for (std::string text; std::getline(one.file, text);)
            if (auto line = line_from(text); line && line->id < one.before && query.matches(*line))
                found.push_back(std::move(*line));
    std::stable_sort(found.begin(), found.end(), [](const LogLine& a, const LogLine& b) { return a.id < b.id; });
    if (query.last != 0 && found.size() > query.last)
        found.erase(found.begin(), found.end() - static_cast<std::ptrdiff_t>(query.last));
    return found;
}

std::shared_ptr<LogStore::Follower> LogStore::follow(const Query& query, std::function<void(const LogLine&)> on_line) {
    return std::make_shared<Follower>(followers_, query, std::move(on_line));
}

} // namespace kvmserver::daemon
