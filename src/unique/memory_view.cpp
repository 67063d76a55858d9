#include "src/unique/memory_view.hpp"

#include <algorithm>

namespace kvmserver::unique {

using tinykvm::GuestVirt;

MemoryView::MemoryView(std::vector<Area> areas, std::vector<Written> written)
    : areas_(std::move(areas)), written_(std::move(written)) {
    for (const Area& area : areas_)
        if (area.writable())
            own_.push_back({area.begin, area.end});
}

const Area* MemoryView::area_at(GuestVirt at) const {
    const auto after = std::upper_bound(areas_.begin(), areas_.end(), at,
                                        [](GuestVirt wanted, const Area& area) { return wanted < area.begin; });
    if (after == areas_.begin())
        return nullptr;
    const Area& area = *std::prev(after);
    return at < area.end ? &area : nullptr;
}

std::span<const std::byte> MemoryView::bytes(GuestVirt at, std::size_t count) const {
    constexpr std::uint32_t kReadsBetweenLooks = 1 << 14;
    if (++reads_ % kReadsBetweenLooks == 0)
        check_time();
    const Area* area = area_at(at);
    if (!area || count > area->end.value - at.value)
        return {};
    return area->bytes.subspan(at.value - area->begin.value, count);
}

std::string_view MemoryView::text(GuestVirt at, std::size_t most) const {
    const Area* area = area_at(at);
    if (!area)
        return {};
    const auto rest = area->bytes.subspan(at.value - area->begin.value);
    const auto part = rest.first(std::min(most, rest.size()));
    const auto nul = std::find(part.begin(), part.end(), std::byte{0});
    if (nul == part.end())
        return {};
    return {reinterpret_cast<const char*>(part.data()), static_cast<std::size_t>(nul - part.begin())};
}

bool MemoryView::writable(GuestVirt at, std::size_t count) const {
    const auto parts = writable_parts(at, count);
    return parts.size() == 1 && parts[0].begin == at && parts[0].end.value - at.value == count;
}

std::vector<Range> MemoryView::writable_parts(GuestVirt at, std::size_t count) const {
    std::vector<Range> parts;
    if (count == 0 || at.value + count < at.value)
        return parts;
    const GuestVirt end = at + count;
    auto run = std::upper_bound(own_.begin(), own_.end(), at,
                                [](GuestVirt wanted, const Range& range) { return wanted < range.end; });
    for (; run != own_.end() && run->begin < end; ++run)
        parts.push_back({std::max(at, run->begin), std::min(end, run->end)});
    return parts;
}

const Area* MemoryView::file_named(std::string_view beginning) const {
    const auto found = std::find_if(areas_.begin(), areas_.end(), [&](const Area& area) {
        return area.name.starts_with('/') &&
               std::string_view(area.name).substr(area.name.rfind('/') + 1).starts_with(beginning);
    });
    return found == areas_.end() ? nullptr : &*found;
}

} // namespace kvmserver::unique
