#include "src/cli/function_process.hpp"

#include <fcntl.h>

#include <iostream>

#include "src/runner/listeners.hpp"
#include "src/snapshot/unpacked.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

tinykvm::UniqueFd inherited(const std::string& number) {
    tinykvm::UniqueFd fd(parse_listen_fd("fd:" + number));
    ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
    return fd;
}

} // namespace

int function_process(const std::vector<std::string>& words, const std::function<int(FunctionOptions)>& action) {
    try {
        if (words.size() != 4 && words.size() != 6)
            throw tinykvm::UserError(tinykvm::ExitCode::usage, std::string(kFunctionProcess) + " is for `kvmserver serve` to use");
        FunctionOptions options;
        options.name = words[1];
        options.control = inherited(words[2]);
        options.pieces = inherited(words[3]);
        if (words.size() == 6) {
            options.after_restore = words[4];
            options.values = inherited(words[5]);
        }
        options.machine.ephemeral = true;
        options.machine.cache = default_cache_folder();
        return action(std::move(options));
    } catch (const tinykvm::UserError& error) {
        std::cerr << "kvmserver: " << error.what() << std::endl;
        return static_cast<int>(error.code());
    } catch (const std::exception& error) {
        std::cerr << "kvmserver: " << error.what() << std::endl;
        return static_cast<int>(tinykvm::ExitCode::failure);
    }
}

} // namespace kvmserver::cli
