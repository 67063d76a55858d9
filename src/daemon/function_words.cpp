#include "src/daemon/function_words.hpp"

#include <cstddef>
#include <string_view>
#include <utility>

extern char** environ;

namespace kvmserver::daemon {

jail::Program function_words(const char* first, jail::Mode mode, const std::string& executable) {
    // Reserves room in the command line for the name of what it will serve.
    constexpr std::size_t kTitleBytes = 96;
    std::string title = std::string_view(first) == kFunctionTemplate ? "template" : "spare";
    title.resize(kTitleBytes, ' ');
    jail::Program program{
        executable,
        {"kvmserver", first, std::move(title), std::to_string(kFunctionControl), std::string(jail::text_of(mode))},
        {},
        {},
        -1};
    for (char** entry = environ; *entry; ++entry) {
        const std::string_view text = *entry;
        if (text.starts_with("LD_") || text.starts_with("MALLOC_") || text.starts_with("GLIBC_"))
            program.environment.emplace_back(text);
    }
    return program;
}

} // namespace kvmserver::daemon
