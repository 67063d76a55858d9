#include "src/protocol/cache_session.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "tinykvm/base/io_buffer.hpp"
#include "tinykvm/base/read.hpp"

namespace kvmserver::protocol {

using tinykvm::UniqueFd;

namespace {

CopyName name_of(const CacheEntry& entry) { return {Digest{entry.sha256}, entry.bytes}; }

// Returns why `file` is not a sealed memfd of `bytes` bytes, or "".
std::string no_copy(int file, std::uint64_t bytes) {
    const int seals = ::fcntl(file, F_GET_SEALS); // fails for anything but a memfd
    if (seals < 0 || (seals & cache_seals()) != cache_seals())
        return "passed a descriptor that is not a sealed memfd";
    struct stat info {};
    if (::fstat(file, &info) != 0 || static_cast<std::uint64_t>(info.st_size) != bytes)
        return "passed a copy whose length is not the announced one";
    return "";
}

} // namespace

CacheSession::Outcome CacheSession::handle(CacheRequest& request, std::uint64_t now_ns) {
    for (const CacheEntry& entry : request.entries)
        if (!PageCache::is_size(entry.bytes))
            return {{}, fmt::format("named a copy of {} bytes, which is not a valid size", entry.bytes), 0};
    return request.kind == CacheKind::find ? find(request) : keep(request, now_ns);
}

CacheSession::Outcome CacheSession::find(const CacheRequest& request) {
    std::vector<CopyName> names;
    for (const CacheEntry& entry : request.entries)
        names.push_back(name_of(entry));
    return {folder_.find_all(names), "", 0};
}

CacheSession::Outcome CacheSession::keep(CacheRequest& request, std::uint64_t now_ns) {
    const CopyName name = name_of(request.entries.front());
    if (request.files.empty()) { // no descriptor was left for the file, so none is left for the copy
        Outcome none;
        if (request.kind == CacheKind::keep)
            none.answer.emplace(1);
        return none;
    }
    if (std::string why = no_copy(request.files.front().get(), name.bytes); !why.empty())
        return {{}, std::move(why), 0};
    const UniqueFd file = std::move(request.files.front());
    Outcome outcome;
    UniqueFd copy = folder_.find(name);
    if (!copy && bytes_->take(name.bytes, now_ns)) {
        // Verify our own copy, not the file, and publish the same bytes.
        tinykvm::IoBuffer pages(name.bytes);
        if (tinykvm::read_at(file.get(), 0, pages) != pages.size() || !FolderCache::is_of(name, pages))
            return {{}, "passed a copy that does not have the announced digest", 0};
        copy = folder_.publish(name, pages);
        outcome.kept = copy ? name.bytes : 0;
    }
    if (request.kind == CacheKind::keep) {
        outcome.answer.emplace();
        outcome.answer->push_back(std::move(copy));
    }
    return outcome;
}

} // namespace kvmserver::protocol
