-- From schema 2 to 3: what is granted at most, as JSON; '': no ceilings.

-- To what its holder deploys.
ALTER TABLE token ADD COLUMN ceilings TEXT NOT NULL DEFAULT '';
-- To the version: those of who deployed it.
ALTER TABLE version ADD COLUMN ceilings TEXT NOT NULL DEFAULT '';
