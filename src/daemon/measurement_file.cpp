#include "src/daemon/measurement_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace kvmserver::daemon {

namespace {

using store::Database;
using store::Statement;
using store::Transaction;

constexpr int kBusyMs = 2000;
// One for each layout of the tables and of kLatencyBounds. A file of another layout is set aside.
constexpr int kLayout = 1;
constexpr std::size_t kBuckets = std::tuple_size_v<LatencyBuckets>;
constexpr int kFirstBucket = 3; // column, after requests, errors and cold starts

// What `each` makes of every counter's column, joined by commas.
template <class Each>
std::string columns(const Each& each) {
    std::string out;
    for (const char* const name : {"requests", "errors", "cold_starts"})
        out += (out.empty() ? "" : ", ") + each(std::string(name));
    for (std::size_t i = 0; i < kBuckets; ++i)
        out += ", " + each(fmt::format("bucket_{}", i));
    return out;
}

std::string column_names() {
    return columns([](const std::string& name) { return name; });
}

Counts counts_of(const Statement& row) {
    Counts counts;
    counts.requests = row.natural(0);
    counts.errors = row.natural(1);
    counts.cold_starts = row.natural(2);
    for (std::size_t i = 0; i < kBuckets; ++i)
        counts.latency[i] = row.natural(kFirstBucket + static_cast<int>(i));
    return counts;
}

void create_tables(Database& database) {
    Transaction transaction(database);
    if (database.number("PRAGMA user_version") != 0) // another daemon was faster
        return;
    database.execute("CREATE TABLE function (id INTEGER PRIMARY KEY, name TEXT NOT NULL, created INTEGER NOT NULL, "
                     "used INTEGER NOT NULL, UNIQUE (name, created)) STRICT");
    database.execute(fmt::format(
        "CREATE TABLE point (function INTEGER NOT NULL REFERENCES function ON DELETE CASCADE, step INTEGER NOT NULL, "
        "time INTEGER NOT NULL, {}, PRIMARY KEY (function, step, time)) STRICT, WITHOUT ROWID",
        columns([](const std::string& name) { return name + " INTEGER NOT NULL"; })));
    database.execute(fmt::format("PRAGMA user_version = {}", kLayout));
    transaction.commit();
}

Database opened(store::Folder& folder) {
    if (!folder.size_of(kMeasurementFile)) // created here with a private mode, which SQLite's log takes over
        folder.create(kMeasurementFile);
    Database database(folder.path_of(kMeasurementFile), kBusyMs);
    // The log is kept small; it is synced when it is moved into the file, not for each transaction.
    database.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 250; "
                     "PRAGMA journal_size_limit = 1048576");
    if (database.number("PRAGMA user_version") == 0 && database.number("SELECT count(*) FROM sqlite_schema") == 0)
        create_tables(database);
    if (const auto layout = database.number("PRAGMA user_version"); layout != kLayout)
        database.damaged(fmt::format("layout {} is not that of this kvmserver ({})", layout, kLayout));
    return database;
}

std::uint64_t count_points(const Database& database) {
    return static_cast<std::uint64_t>(database.number("SELECT count(*) FROM point"));
}

void drop_least_used(Database& database, std::uint64_t max_points) {
    Statement find = database.prepare("SELECT id FROM function ORDER BY used, id LIMIT 1");
    Statement drop = database.prepare("DELETE FROM function WHERE id = ?");
    while (count_points(database) > max_points && find.step()) {
        const std::int64_t id = find.integer(0);
        find.run();
        drop.bind(id).run();
    }
}

} // namespace

// --- Counts

void Counts::add(const VersionMetrics& metrics) {
    requests += metrics.duration.count;
    errors += metrics.failed();
    cold_starts += metrics.cold_starts;
    for (std::size_t i = 0; i < kBuckets; ++i)
        latency[i] += metrics.duration.buckets[i];
}

void Counts::add(const Counts& other) {
    requests += other.requests;
    errors += other.errors;
    cold_starts += other.cold_starts;
    for (std::size_t i = 0; i < kBuckets; ++i)
        latency[i] += other.latency[i];
}

Counts Counts::since(const Counts& before) const {
    const auto grown = [](std::uint64_t now, std::uint64_t then) { return now - std::min(now, then); };
    Counts out;
    out.requests = grown(requests, before.requests);
    out.errors = grown(errors, before.errors);
    out.cold_starts = grown(cold_starts, before.cold_starts);
    for (std::size_t i = 0; i < kBuckets; ++i)
        out.latency[i] = grown(latency[i], before.latency[i]);
    return out;
}

std::optional<std::uint64_t> Counts::latency_us(unsigned percent) const {
    std::uint64_t all = 0, seen = 0;
    for (const std::uint64_t count : latency)
        all += count;
    if (all == 0)
        return std::nullopt;
    for (std::size_t i = 0; i < kLatencyBounds.size(); ++i) {
        seen += latency[i];
        if (static_cast<double>(seen) * 100 >= static_cast<double>(all) * percent)
            return kLatencyBounds[i];
    }
    return kLatencyBounds.back();
}

// --- MeasurementFile

MeasurementFile::MeasurementFile(store::Folder& folder) : database_(opened(folder)) {}

void MeasurementFile::set_aside(store::Folder& folder) {
    const std::string file = kMeasurementFile;
    for (const char* const rest : {"-wal", "-shm"}) // would be applied to the next file
        folder.remove(file + rest);
    folder.rename(file, file + ".damaged");
}

void MeasurementFile::add(std::int64_t time, const std::map<FunctionIdentity, Counts>& counts,
                          std::uint64_t max_points) {
    Transaction transaction(database_);
    Statement used = database_.prepare("INSERT INTO function (name, created, used) VALUES (?, ?, ?) "
                                       "ON CONFLICT DO UPDATE SET used = excluded.used RETURNING id");
    Statement point = database_.prepare(
        fmt::format("INSERT INTO point (function, step, time, {}) VALUES (?, ?, ?, {}) ON CONFLICT DO UPDATE SET {}",
                    column_names(), columns([](const std::string&) { return std::string("?"); }),
                    columns([](const std::string& name) { return fmt::format("{0} = {0} + excluded.{0}", name); })));
    for (const auto& [function, more] : counts) {
        used.bind(function.first).bind(function.second).bind(time);
        if (!used.step())
            database_.damaged("a function has no id");
        const std::int64_t id = used.integer(0);
        used.run();
        for (const Span& span : kSpans) {
            point.bind(id).bind(span.step).bind(step_start(time, span.step));
            point.bind(more.requests).bind(more.errors).bind(more.cold_starts);
            for (const std::uint64_t bucket : more.latency)
                point.bind(bucket);
            point.run();
        }
    }
    if (!counts.empty())
        drop_least_used(database_, max_points);
    transaction.commit();
}

void MeasurementFile::keep(const std::function<bool(const FunctionIdentity&)>& exists) {
    std::vector<std::int64_t> gone;
    Statement find = database_.prepare("SELECT id, name, created FROM function");
    while (find.step())
        if (!exists({find.text(1), find.integer(2)}))
            gone.push_back(find.integer(0));
    if (gone.empty())
        return;
    Transaction transaction(database_);
    Statement drop = database_.prepare("DELETE FROM function WHERE id = ?");
    for (const std::int64_t id : gone)
        drop.bind(id).run();
    transaction.commit();
}

void MeasurementFile::prune(std::int64_t now) {
    Transaction transaction(database_);
    Statement drop = database_.prepare("DELETE FROM point WHERE step = ? AND (time < ? OR time > ?)");
    for (const Span& span : kSpans)
        drop.bind(span.step).bind(step_start(now, span.step) - span.seconds).bind(now).run();
    database_.execute("DELETE FROM function WHERE NOT EXISTS (SELECT 1 FROM point WHERE function = function.id)");
    transaction.commit();
}

Points MeasurementFile::points(const FunctionIdentity& function, const Span& span, std::int64_t from,
                               std::int64_t to) const {
    Points out;
    Statement rows = database_.prepare(fmt::format(
        "SELECT {}, time FROM point WHERE function = (SELECT id FROM function WHERE name = ? AND created = ?) "
        "AND step = ? AND time BETWEEN ? AND ?",
        column_names()));
    rows.bind(function.first).bind(function.second).bind(span.step).bind(from).bind(to);
    while (rows.step())
        out[rows.integer(kFirstBucket + static_cast<int>(kBuckets))] = counts_of(rows);
    return out;
}

std::map<FunctionIdentity, Points> MeasurementFile::points(const Span& span, std::int64_t from, std::int64_t to) const {
    std::map<FunctionIdentity, Points> out;
    Statement rows = database_.prepare(fmt::format(
        "SELECT {}, time, name, created FROM function JOIN point ON function = id WHERE step = ? AND time BETWEEN ? "
        "AND ?",
        column_names()));
    rows.bind(span.step).bind(from).bind(to);
    const int time = kFirstBucket + static_cast<int>(kBuckets);
    while (rows.step())
        out[{rows.text(time + 1), rows.integer(time + 2)}][rows.integer(time)] = counts_of(rows);
    return out;
}

std::uint64_t MeasurementFile::count() const { return count_points(database_); }

} // namespace kvmserver::daemon
