// /v1/functions/{name}/history
#include "src/admin/handlers.hpp"
#include "src/ops/json.hpp"

namespace kvmserver::admin {

void list_history(Call& call) {
    auto list = json::array();
    for (const store::Event& event : store::Functions(call.store()).history(call.param("name"))) {
        list.push_back(ops::event_json(event));
        // Tenants do not learn names of the operator's users and tokens.
        if (call.who.limited() && event.author.tenant.empty())
            list.back()["author"] = {{"kind", "operator"}, {"name", ""}};
    }
    call.reply(200, {{"name", call.param("name")}, {"events", list}});
}

} // namespace kvmserver::admin
