// A small HTTP server on a port of its own, for one client at a time, that does what a test says. Its thread makes no
// assertions: they belong to the test's.
#pragma once
#include <sys/socket.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "src/remote/client.hpp"
#include "tests/unit/store/samples.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::remote::test {

struct Asked {
    std::string method, target, body;
    std::map<std::string, std::string> headers; // names in lower case
    std::string header(const std::string& name) const;
};

// One request and its reply.
class Turn {
public:
    Turn(int fd, Asked& asked, std::string& buffer) : fd_(fd), asked_(asked), buffer_(buffer) {}

    const Asked& asked() const { return asked_; }
    std::uint64_t body_bytes() const; // announced
    // Reads the body, or `most` bytes of it, into asked().
    void take_body(std::uint64_t most = UINT64_MAX);
    // With the whole body taken, and a Content-Length.
    void reply(unsigned status, std::string_view body = "",
               const std::vector<std::pair<std::string, std::string>>& headers = {});
    void send(std::string_view bytes); // as they are
    void hang_up() { open_ = false; }  // after what was sent
    void take_all_there_is();          // until the client hangs up
    bool open() const { return open_; }

private:
    bool fill();
    int fd_;
    Asked& asked_;
    std::string& buffer_; // received and not used yet
    bool open_ = true, continued_ = false;
};

enum class By { tcp, socket }; // libcurl, or our own client of a Unix socket

class Server {
public:
    using Handler = std::function<void(Turn&)>;

    explicit Server(Handler handler, int family = AF_INET);
    Server(Handler handler, const std::string& socket); // a Unix socket of that path
    Server(Handler handler, By by);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    std::string url() const { return url_; }
    remote::Server where(std::string token = "kvs_secret") const; // for its client
    // All so far, once the handler is done with the last; rethrows what it has thrown.
    std::vector<Asked> asked() const;
    std::size_t connections() const;

private:
    void start();
    void listen_at(int family);
    void listen_at(const std::string& socket);
    void run();
    void serve(int fd);
    Handler handler_;
    std::optional<store::test::TempFolder> folder_; // of its socket
    std::string url_, socket_;
    tinykvm::UniqueFd listening_, stop_;
    mutable std::mutex mutex_;
    mutable std::condition_variable idle_;
    bool busy_ = false; // the handler is at work
    std::vector<Asked> all_;
    std::size_t connections_ = 0;
    std::exception_ptr error_;
    std::thread thread_; // last: it uses the rest
};

// The same reply to everything.
Server::Handler always(unsigned status, std::string body = "",
                       std::vector<std::pair<std::string, std::string>> headers = {});

// The message of the UserError that `action` throws; "" if it throws none.
inline std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const tinykvm::UserError& error) {
        return error.what();
    }
    return "";
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

} // namespace kvmserver::remote::test
