// A program as a function: snapshot, restored image and request machines are made by the same code as in `kvmserver
// snapshot` and `kvmserver snaprun -e`, so what is measured is what users get.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "src/event_loop/event_loop.hpp"
#include "src/runner/restored.hpp"
#include "src/snapshot/folder_cache.hpp"

namespace kvmserver::micro {

// Program of bench/micro/guest and its arguments.
using Program = std::vector<std::string>;

// The snapshot's file, made by the first call for a program and removed at the end.
const std::filesystem::path& snapshot_of(const Program& program);

enum class Cache { none, kept }; // --cache: whether unpacked copies of chunks are there from an earlier start

// The options of `snaprun -e` for it.
Options options_for(const std::filesystem::path& snapshot, Cache cache);

// A request machine and who talks to it.
class Server {
public:
    Server(Restored& restored, const Options& options);
    // Serves GET `path` and leaves the machine as the program left it; the number that is the reply's body.
    // Throws std::runtime_error when there is none.
    std::uint64_t request(const std::string& path);
    // What follows every request.
    void clean() {
        machine_->reset();
        machine_->prepare();
    }
    tinykvm::Machine& machine() { return *machine_; }

private:
    EventLoop loop_;
    std::unique_ptr<tinykvm::Machine> machine_;
};

// A restored function to take machines from.
class Function {
public:
    explicit Function(const Program& program, Cache cache = Cache::kept)
        : Function(snapshot_of(program), options_for(snapshot_of(program), cache)) {}
    Function(const std::filesystem::path& snapshot, Options options)
        : options_(std::move(options)),
          restored_(SnapshotReader::open(snapshot), std::make_shared<FolderCache>(options_.cache), options_,
                    Restored::Sockets::none) {}
    std::unique_ptr<Server> clone() { return std::make_unique<Server>(restored_, options_); }
    const tinykvm::MachineImage& image() const { return *restored_.image(); }

private:
    Options options_;
    Restored restored_;
};

} // namespace kvmserver::micro
