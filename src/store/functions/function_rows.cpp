// Reads and writes the rows of functions and versions.
#include <fmt/format.h>

#include "src/store/errors.hpp"
#include "src/store/functions/function_record.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

namespace {

VersionState state_in(const Database& database, const std::string& name) {
    for (const VersionState state : {VersionState::pending, VersionState::ready, VersionState::failed})
        if (name == name_of(state))
            return state;
    database.damaged("a version of unknown state");
}

// Checks a row by the same rules as requests.
template <class Record>
void require_sound(const Database& database, const Record& record) {
    try {
        record.check();
    } catch (const BadValue& e) {
        database.damaged(fmt::format("function {}: {}", tinykvm::brief(record.name), e.what()));
    }
}

} // namespace

std::int64_t function_id(const Database& database, std::string_view name) {
    auto found = database.prepare("SELECT id FROM function WHERE name = ?");
    if (!found.bind(name).step())
        throw NotFound(fmt::format("there is no function {}: `kvmserver list` lists them", tinykvm::brief(name)));
    return found.integer(0);
}

FunctionRecord load_function(const Database& database, std::int64_t id) {
    FunctionRecord function;
    auto head = database.prepare(
        "SELECT name, revision, last_version, created, changed, tag, moved FROM function WHERE id = ?");
    if (!head.bind(id).step())
        database.damaged("a function is missing");
    function.id = id;
    function.name = head.text(0);
    function.revision = head.natural(1);
    function.last_version = head.natural(2);
    function.created = head.integer(3);
    function.changed = head.integer(4);
    function.tag = head.text(5);
    if (const std::string moved = head.text(6); !moved.empty())
        try {
            function.moved = moved_from_text(moved);
        } catch (const BadValue& e) {
            database.damaged(fmt::format("function {}: {}", tinykvm::brief(function.name), e.what()));
        }
    auto live = database.prepare("SELECT number, percent FROM traffic WHERE function = ? ORDER BY number");
    for (live.bind(id); live.step();)
        function.live.push_back({live.natural(0), static_cast<unsigned>(live.natural(1))});
    auto routes = database.prepare("SELECT host, path FROM route WHERE function = ? ORDER BY host, path");
    for (routes.bind(id); routes.step();)
        function.routes.push_back({routes.text(0), routes.text(1)});
    auto env = database.prepare("SELECT name, value FROM env WHERE function = ?");
    for (env.bind(id); env.step();)
        function.env[env.text(0)] = env.text(1);
    auto secrets = database.prepare("SELECT name, value, changed FROM secret WHERE function = ?");
    for (secrets.bind(id); secrets.step();)
        function.secrets[secrets.text(0)] = {secrets.text(1), secrets.integer(2)};
    require_sound(database, function);
    return function;
}

VersionRecord load_version(const Database& database, std::int64_t function, std::uint64_t number) {
    auto found =
        database.prepare("SELECT f.name, s.digest, v.manifest, v.created, v.state, v.tenant, v.ceilings FROM version v "
                         "JOIN function f ON f.id = v.function JOIN snapshot s ON s.id = v.snapshot "
                         "WHERE v.function = ? AND v.number = ?");
    if (!found.bind(function).bind(number).step())
        throw NotFound(fmt::format("there is no version {} of this function: `kvmserver versions` lists them", number));
    VersionRecord version{function,
                          found.text(0),
                          number,
                          found.digest(1),
                          found.text(2),
                          found.integer(3),
                          state_in(database, found.text(4)),
                          found.text(5),
                          found.text(6)};
    require_sound(database, version);
    return version;
}

std::vector<std::uint64_t> version_numbers(const Database& database, std::int64_t function) {
    std::vector<std::uint64_t> numbers;
    auto rows = database.prepare("SELECT number FROM version WHERE function = ? ORDER BY number");
    for (rows.bind(function); rows.step();)
        numbers.push_back(rows.natural(0));
    return numbers;
}

void insert_function_row(Database& database, const FunctionRecord& function) {
    database
        .prepare("INSERT INTO function (id, name, revision, last_version, created, changed, tag, moved) "
                 "VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
        .bind(function.id)
        .bind(function.name)
        .bind(function.revision)
        .bind(function.last_version)
        .bind(function.created)
        .bind(function.changed)
        .bind(function.tag)
        .bind(function.moved ? to_text(*function.moved) : "")
        .run();
}

void insert_function_details(Database& database, const FunctionRecord& function) {
    auto live = database.prepare("INSERT INTO traffic (function, number, percent) VALUES (?, ?, ?)");
    for (const Live& part : function.live)
        live.bind(function.id).bind(part.version).bind(std::int64_t{part.percent}).run();
    auto routes = database.prepare("INSERT INTO route (host, path, function) VALUES (?, ?, ?)");
    for (const Route& route : function.routes)
        routes.bind(route.host).bind(route.path).bind(function.id).run();
    auto env = database.prepare("INSERT INTO env (function, name, value) VALUES (?, ?, ?)");
    for (const auto& [name, value] : function.env)
        env.bind(function.id).bind(name).bind(value).run();
    auto secrets = database.prepare("INSERT INTO secret (function, name, value, changed) VALUES (?, ?, ?, ?)");
    for (const auto& [name, secret] : function.secrets)
        secrets.bind(function.id).bind(name).bind(secret.value).bind(secret.changed).run();
}

void insert_version(Database& database, const VersionRecord& version) {
    auto insert =
        database.prepare("INSERT INTO version (function, number, snapshot, manifest, created, state, tenant, ceilings) "
                         "SELECT ?, ?, id, ?, ?, ?, ?, ? FROM snapshot WHERE digest = ?");
    insert.bind(version.function)
        .bind(version.number)
        .bind(version.manifest)
        .bind(version.created)
        .bind(name_of(version.state))
        .bind(version.tenant)
        .bind(version.ceilings)
        .bind(version.snapshot)
        .run();
    if (database.changes() != 1)
        throw NotFound(fmt::format("snapshot {} is not in the store: deploy or push it first", version.snapshot.hex()));
}

} // namespace kvmserver::store
