-- uses: rows
--
-- Forget items that were left behind in scopes that have ended, some at a time.
--
-- KEYS[1]  exec:{<execution>}:x, and by it all the execution's keys
-- ARGV[1]  how many at most
-- answer   1 if there are more
--
-- May be repeated: what is forgotten stays so.

return sweep(tonumber(ARGV[1])) and 0 or 1
