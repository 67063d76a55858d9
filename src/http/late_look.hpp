// Looks a little later at answers that come without a notice (answer.hpp). For one thread.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "src/http/answer.hpp"
#include "src/http/net.hpp"

namespace kvmserver::http {

class LateLook {
public:
    explicit LateLook(asio::io_context& io) : timer_(io) {}
    // Looks at it at least once, within kPatience.
    void add(const std::shared_ptr<Answer>& answer) {
        answers_.push_back(answer);
        if (answers_.size() == 1)
            arm();
    }

private:
    static constexpr std::chrono::milliseconds kPatience{10};
    void arm() {
        timer_.expires_after(kPatience);
        timer_.async_wait([this](error_code error) {
            if (error)
                return;
            for (const auto& answer : std::exchange(answers_, {}))
                if (const auto alive = answer.lock())
                    alive->look();
        });
    }

    Timer timer_;
    std::vector<std::weak_ptr<Answer>> answers_;
};

} // namespace kvmserver::http
