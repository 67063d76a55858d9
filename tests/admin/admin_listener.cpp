// admin_listener STORE KVMSERVER [OPTION=VALUE...]: the API of a store, with nothing that serves its
// functions.
//
// Options: unix=PATH, tcp=HOST:PORT, cert=FILE, key=FILE, most=N (requests at once). Prints "listening
// ADDRESS..."; SIGTERM ends it.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "src/admin/listener.hpp"
#include "src/admin/store_source.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;

namespace {

admin::ListenerOptions options_from(int argc, char** argv) {
    admin::ListenerOptions options;
    for (int i = 3; i < argc; ++i) {
        const std::string word = argv[i];
        const auto equals = word.find('=');
        const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
        if (name == "unix")
            options.socket = value;
        else if (name == "tcp")
            options.tcp = value;
        else if (name == "cert")
            options.certificate = value;
        else if (name == "key")
            options.key = value;
        else if (name == "most")
            options.max_requests = static_cast<unsigned>(std::stoul(value));
    }
    return options;
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 3)
        return 2;
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigprocmask(SIG_BLOCK, &stop, nullptr);
    try {
        store::Store store(argv[1]);
        admin::OpenStore source(argv[1], store);
        admin::Api api(source, {.control = nullptr, .executable = argv[2], .version = "test"});
        admin::Listener listener(api, options_from(argc, argv));
        listener.start();
        std::printf("listening %s\n", listener.address().c_str());
        std::fflush(stdout);
        int signal = 0;
        sigwait(&stop, &signal);
        listener.stop(std::chrono::seconds(5));
        return 0;
    } catch (const tinykvm::UserError& error) {
        std::fprintf(stderr, "kvmserver: %s\n", error.what());
        return static_cast<int>(error.code());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "kvmserver: %s\n", error.what());
        return 1;
    }
}
