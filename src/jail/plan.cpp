#include "src/jail/plan.hpp"

#include <algorithm>

namespace kvmserver::jail {
namespace {

constexpr std::size_t kMaxPaths = 10'000;
constexpr std::size_t kLongestPath = 4096; // PATH_MAX

bool is_path(std::string_view path) { return path.starts_with('/') && path.size() < kLongestPath; }

} // namespace

void add_place(Plan& plan, std::string path, bool write) {
    const auto there = std::ranges::find(plan.places, path, &Place::path);
    if (there != plan.places.end())
        there->write |= write;
    else
        plan.places.push_back({std::move(path), write});
}

// Each item begins with a letter for its kind and ends with a NUL.
std::string to_text(const Plan& plan) {
    std::string text;
    const auto add = [&](char kind, std::string_view value) { text.append(1, kind).append(value).push_back('\0'); };
    add('j', text_of(plan.mode));
    if (plan.network)
        add('n', "");
    if (plan.connect)
        add('c', "");
    if (plan.own_network)
        add('o', "");
    for (const Place& place : plan.places)
        add(place.write ? 'w' : 'r', place.path);
    for (const Bound& bound : plan.bounds) {
        add('b', "");
        for (const Place& place : bound)
            add(place.write ? 'W' : 'R', place.path);
    }
    for (const std::string& folder : plan.folders)
        add('d', folder);
    for (const std::string& path : plan.hidden)
        add('h', path);
    return text;
}

std::optional<Plan> plan_from(std::string_view text) {
    Plan plan;
    std::optional<Mode> mode;
    std::size_t paths = 0;
    while (!text.empty()) {
        const std::size_t end = text.find('\0');
        if (end == text.npos || end == 0)
            return std::nullopt;
        const char kind = text[0];
        const std::string_view value = text.substr(1, end - 1);
        text.remove_prefix(end + 1);
        if (kind == 'j') {
            if (mode = mode_of(value); !mode)
                return std::nullopt;
            continue;
        }
        if (kind == 'n' && value.empty()) {
            plan.network = true;
            continue;
        }
        if (kind == 'c' && value.empty()) {
            plan.connect = true;
            continue;
        }
        if (kind == 'o' && value.empty()) {
            plan.own_network = true;
            continue;
        }
        if (kind == 'b' && value.empty()) {
            plan.bounds.emplace_back();
            continue;
        }
        if (!is_path(value) || ++paths > kMaxPaths)
            return std::nullopt;
        if (kind == 'r' || kind == 'w')
            plan.places.push_back({std::string(value), kind == 'w'});
        else if ((kind == 'R' || kind == 'W') && !plan.bounds.empty())
            plan.bounds.back().push_back({std::string(value), kind == 'W'});
        else if (kind == 'd')
            plan.folders.emplace_back(value);
        else if (kind == 'h')
            plan.hidden.emplace_back(value);
        else
            return std::nullopt;
    }
    if (!mode)
        return std::nullopt;
    plan.mode = *mode;
    return plan;
}

} // namespace kvmserver::jail
