-- From schema 10 to 11: what the bucket of a cluster was seen to have.

-- The generation of the bucket (shared/generation.hpp) in which it had all chunks of the snapshot; -1: not known. Not in
-- records: without it the bucket is asked again.
ALTER TABLE snapshot ADD COLUMN in_bucket_at INTEGER NOT NULL DEFAULT -1;
