-- From schema 4 to 5: versions that go live before their program is warmed up.

-- Until then (milliseconds since 1970) a warmed-up snapshot may take the place of the version's, which is not
-- compressed anew before; 0: it stays. Not in records: without it the program only stays colder.
ALTER TABLE version ADD COLUMN warms_until INTEGER NOT NULL DEFAULT 0;
