-- From schema 1 to 2: whose things are.

-- Of the function's etags: random, so that they tell nothing about other functions, as ids do (how many there are).
ALTER TABLE function ADD COLUMN tag TEXT NOT NULL DEFAULT '0';
-- The prefix of the token by which the version was deployed; '': the operator's, or of before this was kept.
ALTER TABLE version ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
-- The token (its id) that began the upload; 0: the operator by the socket.
ALTER TABLE upload ADD COLUMN token INTEGER NOT NULL DEFAULT 0;
-- Routes that its holder may claim beside those of its functions' own hosts: words.
ALTER TABLE token ADD COLUMN routes TEXT NOT NULL DEFAULT '';
-- Functions of tenants that may have a secret for all: words, patterns of names.
ALTER TABLE secret ADD COLUMN grants TEXT NOT NULL DEFAULT '';
