-- From schema 5 to 6: which functions changed, so that a daemon with very many reads only these again (changes.hpp).

-- Not in records: when the index is made anew, a daemon reads all.
CREATE TABLE change (
    id       INTEGER PRIMARY KEY AUTOINCREMENT, -- in the order of the changes
    function TEXT NOT NULL                      -- its name; '': something that concerns all
) STRICT;

-- Few versions are to be compressed anew, and a daemon looks for them after each change.
CREATE INDEX version_to_compress ON version (function) WHERE compress_later = 1;
