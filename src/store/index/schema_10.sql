-- From schema 9 to 10: what this store has copied from the index of a cluster.

-- By key (shared/documents.hpp) the revision of the cluster's index at which it was written or deleted, as it is here.
-- With the key '': up to which all is copied.
-- Not in records: without it all is copied again.
CREATE TABLE shared (
    key      TEXT PRIMARY KEY,
    revision INTEGER NOT NULL CHECK (revision > 0),
    gone     INTEGER NOT NULL CHECK (gone IN (0, 1)) -- 1: it was deleted
) STRICT, WITHOUT ROWID;
