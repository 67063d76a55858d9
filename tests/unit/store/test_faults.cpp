// The disk fails, or the process dies, at every single file operation of a deploy, a gc, an upload.
#include <fcntl.h>
#include <sys/resource.h>

#include <csignal>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using namespace kvmserver::store;
using namespace kvmserver::store::test;
using Fault = FaultyFiles::Fault;

namespace {

enum class Outcome { done, refused, died };

// A store with two versions of alpha (both live), beta, and something for a gc to do.
void make_baseline(const fs::path& path) {
    Store store(path);
    Functions functions(store);
    deploy(store, "alpha", 1, {"alpha.example.com"});
    deploy(store, "alpha", 2);
    deploy(store, "alpha", 3);
    functions.set_traffic("alpha", {{2, 30}, {3, 70}});
    functions.set_env("alpha", "COLOUR", "red");
    Secrets(store).set("alpha", "KEY", "1234");
    Secrets(store).set("", "SHARED", "5678");
    deploy(store, "beta", 4, {"/beta/*"});
    import(store, sample_pieces(5)); // that no version names
}

// Runs `action` on a copy of the baseline with the fault at the 1st, 2nd, 3rd... operation (some of them, except in
// long runs) until it is not reached any more. `check` sees the store after it was opened again.
void at_every_operation(Fault fault, const std::function<void(Store&)>& action,
                        const std::function<void(Store&, Outcome)>& check, bool undoes = false) {
    const TempFolder folder;
    make_baseline(folder / "baseline");
    const fs::path path = folder / "store";
    const auto [first, step] = kvmserver::test::some_places();
    for (int n = first;; n += step) {
        fs::remove_all(path);
        fs::copy(folder / "baseline", path, fs::copy_options::recursive);
        const auto files = std::make_shared<FaultyFiles>();
        Outcome outcome = Outcome::done;
        std::string said;
        {
            StoreOptions options;
            options.files = files;
            Store store(path, options);
            files->arm(fault, n);
            try {
                action(store);
            } catch (const HostError& e) {
                outcome = Outcome::refused;
                said = e.what();
            } catch (const UserError& e) {
                outcome = Outcome::refused;
                said = e.what();
            } catch (const Died&) {
                outcome = Outcome::died;
            }
        }
        INFO(name_of(fault) << " at operation " << n << " of " << files->calls() << ": " << said);
        { // before anything is repaired
            Store store(path);
            check(store, outcome);
        }
        const VerifyReport report = verify(path);
        INFO(lines_of(report));
        REQUIRE(report.clean());
        if (undoes && fault == Fault::io_error && outcome == Outcome::refused)
            REQUIRE(lines_of(report).find("functions/") == std::string::npos);
        REQUIRE(lines_of(verify(path)).empty()); // all was mended at once
        Store store(path);
        check(store, outcome);
        REQUIRE(picture(store, "beta").find("v1") != std::string::npos);
        if (!files->struck()) {
            REQUIRE(outcome == Outcome::done);
            REQUIRE(n > 3);
            return;
        }
        if (fault == Fault::short_write)
            REQUIRE(outcome == Outcome::done);
    }
}

// What a function looks like before and after `action`.
struct Pictures {
    std::string before, after;
    Pictures(const std::string& name, const std::function<void(Store&)>& action) {
        const TempFolder folder;
        make_baseline(folder / "store");
        Store store(folder / "store");
        before = picture(store, name);
        action(store);
        after = picture(store, name);
    }
    void check(Store& store, const std::string& name, Outcome outcome) const {
        const std::string now = picture(store, name);
        if (outcome == Outcome::done)
            REQUIRE(now == after);
        else if (outcome == Outcome::refused)
            REQUIRE(now == before);
        else
            REQUIRE((now == before || now == after));
    }
};

const std::vector<Fault> kFaults{Fault::full, Fault::io_error, Fault::short_write, Fault::death};

} // namespace

TEST_CASE("a deploy that fails anywhere changes nothing, one that dies is there or not") {
    for (const std::string name : {"alpha", "gamma"}) { // one that is live, and a new one
        const auto action = [&](Store& store) { deploy(store, name, 7, {name + ".example.net"}); };
        const Pictures pictures(name, action);
        REQUIRE(pictures.before != pictures.after);
        for (const Fault fault : kFaults)
            at_every_operation(
                fault, action, [&](Store& store, Outcome outcome) { pictures.check(store, name, outcome); }, true);
    }
}

TEST_CASE("changes and removals are all or nothing") {
    struct Change {
        std::function<void(Store&)> action;
    };
    const std::vector<Change> changes{
        {[](Store& store) { Functions(store).rollback("alpha", 1); }},
        {[](Store& store) { Functions(store).remove_version("alpha", 1); }},
        {[](Store& store) { Functions(store).remove("alpha"); }},
        {[](Store& store) { Secrets(store).set("alpha", "KEY", "new"); }},
        {[](Store& store) { Secrets(store).set("", "SHARED", "new"); }},
    };
    for (const Change& change : changes) {
        const Pictures pictures("alpha", change.action);
        REQUIRE(pictures.before != pictures.after);
        for (const Fault fault : {Fault::io_error, Fault::death})
            at_every_operation(
                fault, change.action, [&](Store& store, Outcome outcome) { pictures.check(store, "alpha", outcome); },
                true);
    }
}

TEST_CASE("a gc that fails anywhere takes nothing that is needed") {
    const auto action = [](Store& store) {
        GcOptions options;
        options.keep_versions = 1;
        gc(store, options);
    };
    const Pictures pictures("alpha", action);
    REQUIRE(pictures.before != pictures.after); // v1 goes
    for (const Fault fault : kFaults)
        at_every_operation(fault, action, [&](Store& store, Outcome) {
            const std::string now = picture(store, "alpha");
            REQUIRE((now == pictures.before || now == pictures.after));
        });
}

TEST_CASE("an upload goes on where it was durable, whatever failed") {
    const Bytes content = joined(sample_pieces(8));
    const Digest digest = sha256(content);
    std::string id;
    const auto action = [&](Store& store) {
        id.clear();
        Uploads uploads(store);
        id = uploads.create(content.size(), digest).id;
        for (std::uint64_t offset = 0; offset < content.size();)
            offset = uploads.append(
                id, offset,
                std::span(content).subspan(offset).first(std::min<std::size_t>(1000, content.size() - offset)));
        uploads.complete(id);
    };
    for (const Fault fault : kFaults)
        at_every_operation(fault, action, [&](Store& store, Outcome outcome) {
            Uploads uploads(store);
            std::uint64_t offset = 0;
            try {
                if (id.empty())
                    return;
                offset = uploads.info(id).offset;
            } catch (const NotFound&) {
                REQUIRE(outcome != Outcome::done);
                return;
            }
            if (offset < content.size())
                uploads.append(id, offset, std::span(content).subspan(offset));
            REQUIRE(sha256_of_file(uploads.complete(id).get(), "upload") == digest);
        });
}

TEST_CASE("SQLite's own writes fail") {
    const TempFolder folder;
    make_baseline(folder / "baseline");
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit old{};
    ::getrlimit(RLIMIT_FSIZE, &old);
    int refused = 0;
    for (rlim_t room = 2000; room < 80'000; room += 1900) {
        fs::remove_all(folder / "store");
        fs::copy(folder / "baseline", folder / "store", fs::copy_options::recursive);
        std::string before, after;
        {
            Store store(folder / "store");
            before = picture(store, "alpha");
            const rlimit limit{room, old.rlim_max};
            ::setrlimit(RLIMIT_FSIZE, &limit);
            try {
                deploy(store, "alpha", 9);
            } catch (const HostError&) {
                ++refused;
                after = before;
            }
            ::setrlimit(RLIMIT_FSIZE, &old);
            if (after.empty())
                after = picture(store, "alpha");
        }
        INFO("room " << room);
        Store store(folder / "store");
        REQUIRE(picture(store, "alpha") == after);
        const VerifyReport report = verify(folder / "store");
        INFO(lines_of(report));
        REQUIRE(report.clean());
    }
    REQUIRE(refused > 3);
    std::signal(SIGXFSZ, old_handler);
}

namespace {

// Notes what a power failure could still take away: bytes of files, names in folders.
class WatchedFiles : public FaultyFiles {
public:
    std::vector<std::string> wrong;
    std::set<std::string> unflushed; // folders with names that are not durable
    std::set<std::string> dirty;     // files with bytes that are not

    int open(int at, const char* path, int flags, mode_t mode) override {
        const std::lock_guard lock(mutex_);
        const int fd = FaultyFiles::open(at, path, flags, mode);
        paths_[fd] = path;
        if (flags & O_CREAT && flags & O_EXCL)
            named(path);
        return fd;
    }
    ssize_t write(int fd, std::span<const std::byte> bytes, std::uint64_t offset) override {
        const std::lock_guard lock(mutex_);
        dirty.insert(paths_[fd]);
        return FaultyFiles::write(fd, bytes, offset);
    }
    int fsync(int fd) override {
        const std::lock_guard lock(mutex_);
        dirty.erase(paths_[fd]);
        unflushed.erase(paths_[fd]);
        return FaultyFiles::fsync(fd);
    }
    int rename(int at, const char* from, const char* to) override {
        const std::lock_guard lock(mutex_);
        if (dirty.contains(from))
            wrong.push_back(std::string(from) + " was named " + to + " before its bytes were flushed");
        named(to);
        return FaultyFiles::rename(at, from, to);
    }
    int mkdir(int at, const char* path, mode_t mode) override {
        const std::lock_guard lock(mutex_);
        const int result = FaultyFiles::mkdir(at, path, mode);
        if (result == 0)
            named(path);
        return result;
    }
    int unlink(int at, const char* path) override {
        const std::lock_guard lock(mutex_);
        // Chunks that are still there after a power failure are found by the next gc.
        if (!std::string_view(path).starts_with("chunks/") && !std::string_view(path).starts_with("uploads/"))
            named(path);
        return FaultyFiles::unlink(at, path);
    }

    int rmdir(int at, const char* path) override {
        const std::lock_guard lock(mutex_);
        unflushed.erase(path);
        named(path);
        return FaultyFiles::rmdir(at, path);
    }

private:
    void named(const std::string& path) {
        if (path.starts_with("tmp/") || path.starts_with("locks/")) // nothing there outlives its process
            return;
        const auto slash = path.rfind('/');
        unflushed.insert(slash == path.npos ? "." : path.substr(0, slash));
    }
    std::map<int, std::string> paths_;
};

} // namespace

TEST_CASE("what has a name was flushed, and so was its name") {
    const TempFolder folder;
    make_baseline(folder / "store");
    const auto files = std::make_shared<WatchedFiles>();
    StoreOptions options;
    options.files = files;
    Store store(folder / "store", options);
    const auto durable = [&](const char* after) {
        INFO(after);
        CHECK(files->wrong == std::vector<std::string>{});
        CHECK(files->unflushed == std::set<std::string>{});
    };
    deploy(store, "alpha", 20, {"/x"});
    durable("a deploy");
    deploy(store, "new", 21);
    durable("a first deploy");
    Secrets(store).set("", "NEW", "1");
    durable("a secret");
    Functions(store).remove_version("alpha", 1);
    durable("a version removed");
    Functions(store).remove("beta");
    durable("a function removed");
    const std::string id = Uploads(store).create(3, sha256("abc")).id;
    durable("an upload begun");
    Uploads(store).append(id, 0, bytes_of("abc"));
    CHECK_FALSE(files->dirty.contains("uploads/" + id));
    durable("an upload appended to");
    gc(store);
    durable("a gc");
}

TEST_CASE("a chunk that another import named, but did not commit, is made durable by the one that does") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    {
        const auto files = std::make_shared<FaultyFiles>();
        StoreOptions options;
        options.files = files;
        Store store(path, options);
        Importer dies(store);
        for (const Bytes& piece : sample_pieces(1))
            dies.put(piece);
        files->arm(FaultyFiles::Fault::io_error, 27); // the first flush of a folder
        CHECK_THROWS_AS(dies.commit(), HostError);
    }
    REQUIRE(files_below(path / "chunks").size() == 6);
    const auto files = std::make_shared<WatchedFiles>();
    StoreOptions options;
    options.files = files;
    Store store(path, options);
    for (const Bytes& piece : sample_pieces(1))
        files->unflushed.insert("chunks/" + sha256(piece).hex().substr(0, 2));
    files->unflushed.insert("chunks");
    import(store, sample_pieces(1));
    CHECK(files->unflushed == std::set<std::string>{});
}
