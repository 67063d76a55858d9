-- From schema 6 to 7: certificates of the public listener.

CREATE TABLE certificate (
    id          INTEGER PRIMARY KEY AUTOINCREMENT, -- another one after each change
    name        TEXT NOT NULL UNIQUE,
    chain       TEXT NOT NULL, -- PEM
    private_key TEXT NOT NULL, -- PEM
    changed     INTEGER NOT NULL
) STRICT;
