// Compresses the snapshots anew that were deployed in a hurry (store::VersionInfo::compress_later), one after the
// other, when nothing else wants the processor, and puts each result in the place of what it was made from.
//
// Nothing is lost if the daemon dies meanwhile: the result is stored as a snapshot before the version names it, and
// until then the version has the snapshot with which it was deployed. The next daemon begins that one anew.
#pragma once
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/daemon/examinations.hpp"
#include "src/daemon/examiner_process.hpp"
#include "src/store/functions/functions.hpp"

namespace kvmserver::daemon {

class Recompressor {
public:
    // `note` gets a line about each snapshot that stays as it is because of an error, on this object's thread.
    // `is_unused` is asked on that thread, too, whether nothing will be restored from a snapshot that no version has
    // any more; it may throw. `examinations` outlives this object.
    Recompressor(std::filesystem::path store, store::StoreOptions options, Examiner examiner,
                 Examinations& examinations, std::function<bool(const Digest&)> is_unused,
                 std::function<void(const std::string&)> note);
    ~Recompressor();
    Recompressor(const Recompressor&) = delete;
    Recompressor& operator=(const Recompressor&) = delete;

    void start();
    void stop(); // ends the process under way
    // Something may have been deployed. Any thread; returns at once.
    void look();
    // Removes the snapshot, which a version had, once it is unused and no process has it open. Any thread; returns at
    // once.
    void superseded(const Digest& snapshot);

private:
    void loop();
    bool wait();
    void round(store::Store& store);
    void compress(store::Store& store, const store::ToCompress& version);
    bool stopped();

    const std::filesystem::path path_;
    const store::StoreOptions options_;
    const Examiner examiner_;
    Examinations& examinations_;
    const std::function<bool(const Digest&)> is_unused_;
    const std::function<void(const std::string&)> note_;

    std::mutex mutex_; // guards the next three
    std::condition_variable changed_;
    bool looked_ = true, stop_ = false;
    std::vector<Digest> told_; // by superseded(), not yet in superseded_

    // Of the thread.
    std::int64_t seen_ = -1;      // Store::data_version
    std::set<Digest> failed_;     // not tried again before the next start
    std::set<Digest> superseded_; // removed once they are unused and no process has them open
    bool again_ = false;          // something could not be done now
    std::chrono::seconds pause_;  // before what could not be done is tried again
    std::thread thread_;
};

} // namespace kvmserver::daemon
