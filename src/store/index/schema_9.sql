-- From schema 8 to 9: chunks that are in a bucket, too.

-- 1: the bucket of `serve --chunks` has it, so the file may be missing here. Not in records: the daemon asks the bucket.
ALTER TABLE chunk ADD COLUMN in_bucket INTEGER NOT NULL DEFAULT 0 CHECK (in_bucket IN (0, 1));
