#include "src/setup/huge_pages.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "src/setup/report.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

void check_arena(const Limits& limits) {
    if (limits.request_arena > limits.request_memory)
        throw UserError(ExitCode::usage,
                        fmt::format("--hugepage-requests-arena: {} MiB are more than a request may take ({} MiB); "
                                    "raise --max-request-memory",
                                    limits.request_arena >> 20, limits.request_memory >> 20));
}

void tell_arena_unused(const Setup& setup) {
    if (setup.env.limits.request_arena != 0)
        note_line("--hugepage-requests-arena: without effect on machines that keep their state; -e resets them");
}

void use_huge_pages(const Options& options, Image& image) {
    image.want_huge_pages(options.huge_pages.main);
    tell_huge_pages(image.huge_bytes(), image.use_huge_pages(), options.verbose.general);
}

void use_huge_pages(const Options& options, Machine& booted) {
    const std::uint64_t wanted =
        std::min(options.huge_pages.main, booted.memory_end()) / kHugePageBytes * kHugePageBytes;
    tell_huge_pages(wanted, booted.use_huge_pages(wanted), options.verbose.general);
}

void tell_huge_pages(std::uint64_t wanted, std::uint64_t got, bool verbose) {
    if (wanted == 0)
        return;
    if (got == 0)
        note_line("--hugepages: the host gives none, so ordinary pages are used (docs/howto/huge-pages.md)");
    else if (verbose)
        note_line(fmt::format("--hugepages: {} of {} MiB are in huge pages", got >> 20, wanted >> 20));
}

void tell_arena(ArenaPages pages, bool verbose) {
    if (pages == ArenaPages::ordinary)
        note_line("--hugepage-requests-arena: too few huge pages, so it has ordinary ones (docs/howto/huge-pages.md)");
    else if (verbose)
        note_line(fmt::format("--hugepage-requests-arena: it consists of {}", text_of(pages)));
}

} // namespace kvmserver
