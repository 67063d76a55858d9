#include "src/cli/processes/inner_process.hpp"

#include <fcntl.h>

#include <exception>
#include <iostream>

#include "src/event_loop/listeners.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {

tinykvm::UniqueFd inherited(const std::string& number) {
    tinykvm::UniqueFd fd(parse_listen_fd("fd:" + number));
    ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
    return fd;
}

int inner_process(const std::function<int()>& work) {
    try {
        return work();
    } catch (const tinykvm::UserError& error) {
        std::cerr << "kvmserver: " << error.what() << std::endl;
        return static_cast<int>(error.code());
    } catch (const std::exception& error) {
        std::cerr << "kvmserver: " << error.what() << std::endl;
        return static_cast<int>(tinykvm::ExitCode::failure);
    }
}

} // namespace kvmserver::cli
