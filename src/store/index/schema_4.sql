-- From schema 3 to 4: snapshots that were compressed in a hurry.

-- 1: the version's snapshot is to be compressed anew. Not in records: without it the snapshot only stays larger.
ALTER TABLE version ADD COLUMN compress_later INTEGER NOT NULL DEFAULT 0 CHECK (compress_later IN (0, 1));
