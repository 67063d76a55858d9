// The endpoints' handlers. Each answers its call or throws (problem.hpp maps exceptions to replies).
#pragma once
#include "src/admin/call.hpp"

namespace kvmserver::admin {

// health.cpp
void healthz(Call& call);
void readyz(Call& call);
void describe_api(Call& call);
void info(Call& call);

// openapi.cpp
void openapi(Call& call);

// certificates.cpp
void list_certificates(Call& call);
void add_certificate(Call& call);
void delete_certificate(Call& call);

// functions.cpp
void list_functions(Call& call);
void describe_function(Call& call);
void put_function(Call& call);
void delete_function(Call& call);

// versions.cpp
void list_versions(Call& call);
void delete_version(Call& call);
void rollback(Call& call);
void put_traffic(Call& call);

// migrate.cpp: needs the daemon
void migrate(Call& call);
// arrive.cpp: the same
void put_version_state(Call& call);
void take_over(Call& call);

// warmed.cpp
void put_version_snapshot(Call& call);

// history.cpp
void list_history(Call& call);

// measurements.cpp: needs the daemon
void list_measurements(Call& call);
void list_all_measurements(Call& call);

// values.cpp
void list_env(Call& call);
void put_env(Call& call);
void delete_env(Call& call);
void list_secrets(Call& call);
void put_secret(Call& call);
void delete_secret(Call& call);

// snapshots.cpp
void list_snapshots(Call& call);
void get_snapshot(Call& call);
void missing_pieces(Call& call);

// uploads.cpp
void list_uploads(Call& call);
void create_upload(Call& call);
void head_upload(Call& call);
void append_upload(Call& call);
void delete_upload(Call& call);

// upkeep.cpp
void gc(Call& call);
void verify(Call& call);
void list_tokens(Call& call);
void create_token(Call& call);
void delete_token(Call& call);

// serving.cpp: needs the daemon
void metrics(Call& call);
void live(Call& call);
void invoke(Call& call);
void suspend(Call& call);
void resume(Call& call);
void reload(Call& call);
// nodes.cpp: needs the daemon
void list_nodes(Call& call);
void drain_node(Call& call);
void uncordon_node(Call& call);
// logs.cpp
void logs(Call& call);

// ui.cpp
void ui_page(Call& call);
void ui_file(Call& call);

} // namespace kvmserver::admin
