// Works on a store until it is killed, and says what it is sure of. For tests/e2e/test_store_crash.py.
//
//     store_crash prepare STORE           functions "steady" and "changing"
//     store_crash work STORE WHAT SEED    WHAT: deploy, gc, upload; endless; a line for all that is
//     acknowledged store_crash finish STORE ID SEED    completes and drops an upload store_crash check STORE
//     verify, and a line for all that there is; status 1 when something is wrong
#include <fcntl.h>
#include <fmt/format.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "src/store/errors.hpp"
#include "src/store/functions/functions.hpp"
#include "src/store/snapshots/gc.hpp"
#include "src/store/snapshots/importer.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"
#include "src/store/snapshots/uploads.hpp"
#include "src/store/snapshots/verify.hpp"

using namespace kvmserver;
using namespace kvmserver::store;

namespace {

using Bytes = std::vector<std::byte>;

// Digest and manifest tell which seed made a version.
std::vector<Bytes> pieces_of(unsigned seed) {
    std::vector<Bytes> all;
    for (unsigned i = 0; i < 12; ++i) {
        std::mt19937 random(i < 6 ? i : seed * 100 + i);
        Bytes piece(20'000);
        for (std::byte& byte : piece)
            byte = static_cast<std::byte>(random());
        all.push_back(std::move(piece));
    }
    return all;
}

Digest digest_of(unsigned seed) {
    Sha256 sum;
    for (const Bytes& piece : pieces_of(seed))
        sum.update(piece);
    return sum.finish();
}

void say(const std::string& line) {
    std::puts(line.c_str());
    std::fflush(stdout);
}

DeployResult deploy(Store& store, const std::string& name, unsigned seed) {
    Importer importer(store);
    for (const Bytes& piece : pieces_of(seed))
        importer.put(piece);
    const SnapshotHold hold = importer.commit();
    DeployRequest request;
    request.function = name;
    request.snapshot = hold.digest();
    request.manifest = fmt::format(R"({{"seed":{}}})", seed);
    return Functions(store).deploy(request);
}

void work_deploy(Store& store, unsigned seed) {
    for (unsigned n = 0;; ++n) {
        const unsigned with = seed * 1000 + n;
        say(fmt::format("begin {}", with));
        say(fmt::format("deployed {} {}", deploy(store, "changing", with).version, with));
        if (n % 3 == 2) { // a function that comes and goes
            say(fmt::format("coming {}", with));
            deploy(store, "fleeting", with);
            Functions(store).remove("fleeting");
        }
    }
}

void work_gc(Store& store, unsigned seed) {
    GcOptions options;
    options.keep_versions = 2;
    for (unsigned n = 0;; ++n) {
        for (unsigned i = 0; i < 3; ++i) {
            const unsigned with = seed * 1000 + 3 * n + i;
            say(fmt::format("begin {}", with));
            say(fmt::format("deployed {} {}", deploy(store, "changing", with).version, with));
        }
        gc(store, options);
        say("collected");
    }
}

void work_upload(Store& store, unsigned seed) {
    Uploads uploads(store);
    for (unsigned n = 0;; ++n) {
        Bytes content;
        for (const Bytes& piece : pieces_of(seed * 1000 + n))
            content.insert(content.end(), piece.begin(), piece.end());
        const std::string id = uploads.create(content.size(), sha256(content)).id;
        say(fmt::format("created {} {}", id, seed * 1000 + n));
        for (std::uint64_t offset = 0; offset < content.size();) {
            const auto part = std::span(content).subspan(offset);
            offset = uploads.append(id, offset, part.first(std::min<std::size_t>(part.size(), 60'000)));
            say(fmt::format("durable {} {}", id, offset));
        }
        uploads.complete(id);
        if (n % 2 == 0) {
            say(fmt::format("dropping {}", id));
            uploads.drop(id);
        }
    }
}

int check(const std::string& path) {
    int status = 0;
    const auto wrong = [&](const std::string& line) {
        say("WRONG " + line);
        status = 1;
    };
    const auto first = verify(path);
    if (!first.clean())
        wrong("verify is not clean");
    for (const Finding& finding : first.findings)
        say("finding " + finding.line);
    if (const auto second = verify(path); !second.findings.empty())
        wrong("a second verify still finds: " + second.findings[0].line);
    Store store(path);
    Functions functions(store);
    for (const FunctionSummary& function : functions.list())
        for (const VersionInfo& version : functions.versions(function.name)) {
            unsigned seed = 0;
            if (std::sscanf(version.manifest.c_str(), "{\"seed\":%u}", &seed) != 1 ||
                version.snapshot != digest_of(seed))
                wrong(fmt::format("{} v{} is not what was deployed", function.name, version.number));
            try { // every byte is compared with its digest
                const tinykvm::UniqueFd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
                StoredSnapshot(store, version.snapshot).export_to(nowhere.get());
            } catch (const UserError& e) {
                wrong(fmt::format("{} v{}: {}", function.name, version.number, e.what()));
            }
            say(fmt::format("version {} {} {} {}", function.name, version.number, seed, version.percent));
        }
    Uploads uploads(store);
    for (const UploadInfo& upload : uploads.list()) {
        say(fmt::format("upload {} {}", upload.id, upload.offset));
        const auto writer = uploads.append(upload.id, upload.offset); // it can go on
    }
    return status;
}

// The upload that was cut off goes on from where it is durable, and is what it was to be.
int finish_upload(Store& store, const std::string& id, unsigned seed) {
    Uploads uploads(store);
    Bytes content;
    for (const Bytes& piece : pieces_of(seed))
        content.insert(content.end(), piece.begin(), piece.end());
    const std::uint64_t offset = uploads.info(id).offset;
    if (offset < content.size())
        uploads.append(id, offset, std::span(content).subspan(offset));
    uploads.complete(id);
    uploads.drop(id);
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> args(argv + 1, argv + argc);
    try {
        if (args.size() == 2 && args[0] == "check")
            return check(args[1]);
        if (args.size() < 2)
            return 2;
        Store store(args[1]);
        if (args[0] == "prepare") {
            deploy(store, "steady", 1);
            deploy(store, "changing", 2);
            return 0;
        }
        if (args.size() != 4)
            return 2;
        const auto seed = static_cast<unsigned>(std::stoul(args[3]));
        if (args[0] == "finish")
            return finish_upload(store, args[2], seed);
        if (args[2] == "deploy")
            work_deploy(store, seed);
        if (args[2] == "gc")
            work_gc(store, seed);
        if (args[2] == "upload")
            work_upload(store, seed);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "store_crash: %s\n", e.what());
    }
    return 2;
}
