// A whole terminal for a command: the alternate screen, single keys, the window's size.
#pragma once
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace kvmserver::cli::platform {

enum class Key { none, other, left, right, resized, ended };

// stdout is a terminal that can move its cursor (TERM is not "dumb").
bool has_screen();
// stdout may have colours: NO_COLOR is not set and TERM is not "dumb".
bool has_colours();

// Takes the terminal while it exists; there is one at a time. A signal that ends or stops this process gives the
// terminal back first, and a continued process takes it again.
class Screen {
public:
    Screen(); // throws HostError
    ~Screen();
    Screen(const Screen&) = delete;
    Screen& operator=(const Screen&) = delete;

    struct Size {
        std::size_t columns, rows;
    };
    Size size() const;
    void show(const std::vector<std::string>& lines); // at most as many as there are rows
    struct Press {
        Key key = Key::none;
        char letter = 0; // of Key::other
    };
    // Waits until a key is pressed, the window has another size, or `until` has come. Key::ended: there is no more
    // input.
    Press wait(std::chrono::steady_clock::time_point until);

private:
    std::string pending_; // keys that were read
};

} // namespace kvmserver::cli::platform
