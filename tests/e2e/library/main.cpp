// The library of include/tinykvm as an embedder sees it. tests/e2e/test_library.py runs each case.
#include "tests/e2e/library/cases.hpp"

#include <cstdlib>
#include <filesystem>

namespace cases {

std::string folder() { return std::filesystem::canonical("/proc/self/exe").parent_path().string(); }

double slowness() {
    const char* text = std::getenv("E2E_SLOWNESS");
    return text ? std::atof(text) : 1;
}

tinykvm::Program program(const std::string& path, const std::string& argument) {
    tinykvm::Program made(path);
    if (!argument.empty())
        made.argument(argument);
    made.set("max-request-time", std::to_string(10 * slowness()));
    return made;
}

const tinykvm::Image& image() {
    static const tinykvm::Image booted = tinykvm::Image::boot(program(callee()));
    return booted;
}

} // namespace cases
