-- From schema 7 to 8: functions that another daemon has taken over.

-- JSON (moved.hpp); '': it is served here.
ALTER TABLE function ADD COLUMN moved TEXT NOT NULL DEFAULT '';
