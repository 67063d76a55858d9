#include "src/ops/when.hpp"

#include <cstdint>
#include <string>

#include "src/common/time_text.hpp"
#include "src/store/errors.hpp"
#include "tests/catch.hpp"

using kvmserver::ops::time_from;

constexpr std::int64_t kNow = 1'800'000'000'000;

TEST_CASE("a time ago is counted back from now") {
    CHECK(time_from("0s", kNow) == kNow);
    CHECK(time_from("90s", kNow) == kNow - 90'000);
    CHECK(time_from("10m", kNow) == kNow - 600'000);
    CHECK(time_from("2h", kNow) == kNow - 7'200'000);
    CHECK(time_from("3d", kNow) == kNow - 259'200'000);
}

TEST_CASE("a moment is in UTC, as the platform itself writes it") {
    CHECK(time_from("1970-01-01T00:00:01Z", kNow) == 1000);
    CHECK(time_from("2026-11-21T03:00:09Z", 0) == 1'795'230'009'000);
    CHECK(time_from(kvmserver::time_text(kNow), 0) == kNow);
}

TEST_CASE("what is no time is refused with examples of one") {
    for (const char* bad :
         {"", "10", "m", "10 m", "-5m", "1.5h", "10w", "100000000s", "99999999999999999999d", "2026-11-21",
          "2026-11-21T03:00:09", "2026-13-01T00:00:00Z", "2026-11-21T03:00:09Z!", "yesterday"}) {
        CAPTURE(bad);
        try {
            time_from(bad, kNow);
            FAIL_CHECK("it was taken for a time");
        } catch (const kvmserver::store::BadValue& error) {
            CHECK(std::string(error.what()).find("write 10m, 2h, 3d or") != std::string::npos);
        }
    }
}
