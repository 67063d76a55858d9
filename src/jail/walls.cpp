#include "src/jail/walls.hpp"

namespace kvmserver::jail {

std::optional<Mode> mode_of(std::string_view text) {
    for (const Mode mode : {Mode::off, Mode::automatic, Mode::strict})
        if (text == text_of(mode))
            return mode;
    return std::nullopt;
}

std::string_view text_of(Mode mode) {
    switch (mode) {
    case Mode::off: return "off";
    case Mode::automatic: return "auto";
    case Mode::strict: return "strict";
    }
    return "";
}

std::string_view name_of(Wall wall) {
    switch (wall) {
    case Wall::user: return "user";
    case Wall::mounts: return "mounts";
    case Wall::network: return "network";
    case Wall::processes: return "processes";
    case Wall::ipc: return "ipc";
    case Wall::capabilities: return "capabilities";
    case Wall::landlock: return "landlock";
    case Wall::system_calls: return "system calls";
    case Wall::limits: return "limits";
    }
    return "";
}

std::string text_of(const std::vector<Missing>& missing) {
    std::string text;
    for (const Missing& wall : missing) {
        if (!text.empty())
            text += ", ";
        text += std::string(name_of(wall.wall)) + " (" + wall.why + ")";
    }
    return text;
}

} // namespace kvmserver::jail
