-- From schema 4 to 5: the history of functions, and versions that go live before their program is warmed up.

-- Who changed what, when and why: the newest of each function (event.hpp). Not in records: when the index is made
-- anew, the history begins anew.
CREATE TABLE event (
    id        INTEGER PRIMARY KEY, -- in the order of the changes
    function  INTEGER NOT NULL REFERENCES function (id) ON DELETE CASCADE,
    time      INTEGER NOT NULL,
    by_token  INTEGER NOT NULL CHECK (by_token IN (0, 1)), -- 0: by a user of the host
    author    TEXT NOT NULL, -- name of the token or the user; '': not known
    tenant    TEXT NOT NULL, -- prefix of the token
    action    TEXT NOT NULL,
    subject   TEXT NOT NULL,
    change    TEXT NOT NULL,
    message   TEXT NOT NULL,
    bytes     INTEGER, -- of a deploy: of the snapshot
    new_bytes INTEGER  -- of a deploy: in no earlier version of the function
) STRICT;
CREATE INDEX event_function ON event (function);

-- Until then (milliseconds since 1970) a warmed-up snapshot may take the place of the version's, which is not
-- compressed anew before; 0: it stays. Not in records: without it the program only stays colder.
ALTER TABLE version ADD COLUMN warms_until INTEGER NOT NULL DEFAULT 0;
