#include "tests/unit/remote/far_api.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/daemon/examinations.hpp"
#include "src/daemon/process_messages.hpp"
#include "src/ops/child.hpp"
#include "src/snapshot/byte_source.hpp"
#include "src/snapshot/facts.hpp"
#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/base/write.hpp"

namespace kvmserver::remote::test {
namespace {

// A client that is gone once it has sent what there is.
class Vanishing : public admin::test::Client {
public:
    using admin::test::Client::Client;
    std::size_t read(std::span<std::byte> into) override {
        const std::size_t count = admin::test::Client::read(into);
        if (count == 0)
            throw admin::ClientGone();
        return count;
    }
};

// As by an examiner, but in this process.
SnapshotFacts examine(const store::PieceFiles& pieces, std::uint64_t bytes) {
    const tinykvm::UniqueFd list = ops::memory_file("list");
    const std::string text = daemon::list_of(pieces);
    tinykvm::write_all(list.get(), std::as_bytes(std::span(text)), "the list");
    std::vector<tinykvm::UniqueFd> files;
    for (std::size_t i = 0; i < pieces.piece_count(); ++i)
        files.push_back(pieces.open_piece(i));
    const auto source = open_pieces_source(list.get(), std::move(files));
    return facts_from_text(to_text(examine_snapshot(*source, Depth::whole)), Depth::whole, bytes);
}

} // namespace

FarApi::FarApi(Harm what)
    : world(
          {.examinations = std::make_shared<daemon::Examinations>(daemon::Examinations::Operations{{}, examine, {}})}),
      harm(std::move(what)), server([this](Turn& turn) {
          if (!harm(*this, turn))
              pass_on(turn);
      }) {}

admin::test::Reply FarApi::say(Turn& turn) {
    const Asked& asked = turn.asked();
    const admin::Headers headers{{"Upload-Offset", asked.header("upload-offset")}};
    if (asked.body.size() < turn.body_bytes()) {
        Vanishing client(asked.body);
        try {
            world.ask(asked.method, asked.target, client, headers);
        } catch (const admin::ClientGone&) {
        }
        return client.reply();
    }
    return world.ask(asked.method, asked.target, asked.body, headers);
}

void FarApi::pass_on(Turn& turn) {
    turn.take_body();
    const admin::test::Reply reply = say(turn);
    turn.reply(reply.status, reply.body, reply.headers);
}

} // namespace kvmserver::remote::test
