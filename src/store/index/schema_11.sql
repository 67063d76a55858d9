-- From schema 10 to 11: what the bucket of a cluster was seen to have, and which of its nodes are drained.

-- The generation of the bucket (shared/generation.hpp) in which it had all chunks of the snapshot; -1: not known. Not in
-- records: without it the bucket is asked again.
ALTER TABLE snapshot ADD COLUMN in_bucket_at INTEGER NOT NULL DEFAULT -1;

-- Ids of nodes (shared/drained.hpp). Not in records: the cluster's index has them.
CREATE TABLE drained (node TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
