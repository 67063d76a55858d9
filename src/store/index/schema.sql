-- The index, schema 1 (migrations.cpp has what came later). Times are milliseconds since 1970.
-- What the rows of functions and snapshots say is also in the records beside the index (FORMAT.md), from which it
-- can be rebuilt.

CREATE TABLE chunk (
    id     INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    size   INTEGER NOT NULL CHECK (size > 0)
) STRICT;

CREATE TABLE snapshot (
    id      INTEGER PRIMARY KEY,
    digest  BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    size    INTEGER NOT NULL CHECK (size > 0),
    created INTEGER NOT NULL
) STRICT;

-- The pieces of a snapshot, in order, are its file.
CREATE TABLE piece (
    snapshot INTEGER NOT NULL REFERENCES snapshot (id) ON DELETE CASCADE,
    place    INTEGER NOT NULL CHECK (place >= 0),
    chunk    INTEGER NOT NULL REFERENCES chunk (id),
    PRIMARY KEY (snapshot, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX piece_chunk ON piece (chunk);

-- AUTOINCREMENT: an id that was ever committed is never used again, so that a record whose id is higher than all of
-- them was never committed.
CREATE TABLE function (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT NOT NULL UNIQUE,
    revision     INTEGER NOT NULL CHECK (revision > 0),
    last_version INTEGER NOT NULL CHECK (last_version >= 0),
    created      INTEGER NOT NULL,
    changed      INTEGER NOT NULL
) STRICT;

CREATE TABLE version (
    id       INTEGER PRIMARY KEY,
    function INTEGER NOT NULL REFERENCES function (id) ON DELETE CASCADE,
    number   INTEGER NOT NULL CHECK (number > 0),
    snapshot INTEGER NOT NULL REFERENCES snapshot (id),
    manifest TEXT NOT NULL,
    created  INTEGER NOT NULL,
    state    TEXT NOT NULL CHECK (state IN ('pending', 'ready', 'failed')),
    UNIQUE (function, number)
) STRICT;
CREATE INDEX version_snapshot ON version (snapshot);

-- Live versions. The percentages of a function sum to 100, or there are none.
CREATE TABLE traffic (
    function INTEGER NOT NULL REFERENCES function (id) ON DELETE CASCADE,
    number   INTEGER NOT NULL,
    percent  INTEGER NOT NULL CHECK (percent BETWEEN 1 AND 100),
    PRIMARY KEY (function, number),
    FOREIGN KEY (function, number) REFERENCES version (function, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE route (
    host     TEXT NOT NULL,
    path     TEXT NOT NULL,
    function INTEGER NOT NULL REFERENCES function (id) ON DELETE CASCADE,
    PRIMARY KEY (host, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX route_function ON route (function);

CREATE TABLE env (
    function INTEGER NOT NULL REFERENCES function (id) ON DELETE CASCADE,
    name     TEXT NOT NULL,
    value    TEXT NOT NULL,
    PRIMARY KEY (function, name)
) STRICT, WITHOUT ROWID;

-- Secrets of one function, and those that any function may ask for (function IS NULL).
CREATE TABLE secret (
    id       INTEGER PRIMARY KEY,
    function INTEGER REFERENCES function (id) ON DELETE CASCADE,
    name     TEXT NOT NULL,
    value    TEXT NOT NULL,
    changed  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX secret_name ON secret (coalesce(function, 0), name);

CREATE TABLE token (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    name      TEXT NOT NULL UNIQUE,
    hash      BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    scopes    INTEGER NOT NULL CHECK (scopes BETWEEN 1 AND 15),
    prefix    TEXT NOT NULL,
    created   INTEGER NOT NULL,
    expires   INTEGER,
    last_used INTEGER
) STRICT;

-- `durable` bytes of uploads/<id> are on the disk; what the file has beyond them does not count.
CREATE TABLE upload (
    id      TEXT PRIMARY KEY,
    size    INTEGER NOT NULL CHECK (size > 0),
    digest  BLOB NOT NULL CHECK (length(digest) = 32),
    durable INTEGER NOT NULL CHECK (durable BETWEEN 0 AND size),
    created INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
