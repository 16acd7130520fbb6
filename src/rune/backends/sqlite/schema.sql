-- One file holds State, the Broker's messages, and the timers of both.
-- Whatever grows with a fan-out is rows of its own, found by (execution, …); ending an execution deletes by that prefix.

-- An execution: alive, ended, or only its tombstone, which goes at `until`.
CREATE TABLE execution (
    number  INTEGER PRIMARY KEY, -- the order in which they were first heard of
    id      TEXT    NOT NULL UNIQUE,
    touched REAL    NOT NULL,
    closer  TEXT    NOT NULL,
    ending  BLOB,
    buried  INTEGER NOT NULL,
    paused  INTEGER NOT NULL,
    until   REAL
);
CREATE INDEX execution_live   ON execution (buried) WHERE buried = 0;
CREATE INDEX execution_buried ON execution (until)  WHERE buried = 1;
CREATE INDEX execution_paused ON execution (paused) WHERE paused = 1;

-- A scope that is more than one branch with nothing to remember; `key` is '' or 'barrier.item'.
CREATE TABLE scope (
    execution TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    live      INTEGER NOT NULL,
    error     BLOB,
    PRIMARY KEY (execution, key)
) WITHOUT ROWID;

CREATE TABLE settled (
    execution TEXT NOT NULL,
    scope     TEXT NOT NULL,
    step      TEXT NOT NULL,
    PRIMARY KEY (execution, scope, step)
) WITHOUT ROWID;

CREATE TABLE branch_end (
    execution TEXT NOT NULL,
    scope     TEXT NOT NULL,
    step      TEXT NOT NULL,
    path      TEXT NOT NULL,
    node      TEXT NOT NULL,
    folds     BLOB NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (execution, scope, step)
) WITHOUT ROWID;

-- Until when a step is leased is not here: a lease ends with the process that holds it, and there is only one.
CREATE TABLE step (
    execution TEXT    NOT NULL,
    id        TEXT    NOT NULL,
    scope     TEXT    NOT NULL,
    fence     INTEGER NOT NULL,
    spent     INTEGER NOT NULL,
    record    BLOB,
    -- When the record set variables, among all that did, and those that it sets when the step is met.
    turn      INTEGER NOT NULL DEFAULT 0,
    sets      BLOB,
    PRIMARY KEY (execution, id)
) WITHOUT ROWID;
CREATE INDEX step_of_scope ON step (execution, scope) WHERE scope <> '';

-- What steps have set for all that come after them, in whichever branch.
CREATE TABLE variable (
    execution TEXT NOT NULL,
    name      TEXT NOT NULL,
    data      BLOB NOT NULL,
    turn      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (execution, name)
) WITHOUT ROWID;

-- What of a barrier changes only when a lazy source is read; what an item that ends rewrites is in `tally`.
CREATE TABLE barrier (
    execution    TEXT    NOT NULL,
    id           TEXT    NOT NULL,
    parent       TEXT    NOT NULL,
    total        INTEGER NOT NULL,
    width        INTEGER NOT NULL,
    tolerated    INTEGER,
    need_success INTEGER NOT NULL,
    "window"     INTEGER NOT NULL,
    keep_results INTEGER NOT NULL,
    timer        TEXT    NOT NULL,
    "release"    BLOB    NOT NULL,
    refill       BLOB    NOT NULL,
    PRIMARY KEY (execution, id)
) WITHOUT ROWID;
CREATE INDEX barrier_of_scope ON barrier (execution, parent) WHERE parent <> '';

CREATE TABLE tally (
    execution   TEXT    NOT NULL,
    barrier     TEXT    NOT NULL,
    published   INTEGER NOT NULL,
    source      TEXT    NOT NULL DEFAULT '', -- of a lazy one: 'idle' or 'reading', until all its items are known
    succeeded   INTEGER NOT NULL,
    failed      INTEGER NOT NULL,
    skipped     INTEGER NOT NULL,
    closed      INTEGER NOT NULL,
    failure     TEXT    NOT NULL,
    closer      TEXT    NOT NULL,
    folds       BLOB    NOT NULL,
    first_error BLOB,
    PRIMARY KEY (execution, barrier)
) WITHOUT ROWID;

CREATE TABLE slot (
    execution TEXT    NOT NULL,
    barrier   TEXT    NOT NULL,
    item      INTEGER NOT NULL,
    data      BLOB, -- NULL: the item was skipped
    PRIMARY KEY (execution, barrier, item)
) WITHOUT ROWID;

CREATE TABLE refill (
    execution TEXT    NOT NULL,
    barrier   TEXT    NOT NULL,
    step      TEXT    NOT NULL,
    start     INTEGER NOT NULL,
    stop      INTEGER NOT NULL,
    reads     INTEGER NOT NULL,
    PRIMARY KEY (execution, barrier, step)
) WITHOUT ROWID;

CREATE TABLE merge (
    execution TEXT    NOT NULL,
    id        TEXT    NOT NULL,
    scope     TEXT    NOT NULL,
    expected  INTEGER NOT NULL,
    need      INTEGER,
    accounted INTEGER NOT NULL,
    live      INTEGER NOT NULL,
    state     TEXT    NOT NULL,
    closer    TEXT    NOT NULL,
    winner    TEXT    NOT NULL,
    timer     TEXT    NOT NULL,
    PRIMARY KEY (execution, id)
) WITHOUT ROWID;
CREATE INDEX merge_of_scope ON merge (execution, scope) WHERE scope <> '';

CREATE TABLE arrival (
    execution TEXT    NOT NULL,
    merge     TEXT    NOT NULL,
    member    TEXT    NOT NULL,
    place     INTEGER NOT NULL,
    payload   BLOB, -- NULL: a skipped one
    PRIMARY KEY (execution, merge, member)
) WITHOUT ROWID;

-- A claim moves `due` to its own end and keeps the time before it, which opening the file puts back.
CREATE TABLE timer (
    execution TEXT    NOT NULL,
    id        TEXT    NOT NULL,
    due       REAL,
    unclaimed REAL,
    sleeping  INTEGER NOT NULL,
    task      BLOB    NOT NULL,
    PRIMARY KEY (execution, id)
) WITHOUT ROWID;
CREATE INDEX timer_due     ON timer (due)       WHERE due IS NOT NULL;
CREATE INDEX timer_claimed ON timer (unclaimed) WHERE unclaimed IS NOT NULL;

CREATE TABLE value (
    execution TEXT NOT NULL,
    hash      TEXT NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (execution, hash)
);

CREATE TABLE parked (
    execution TEXT NOT NULL,
    step      TEXT NOT NULL,
    task      BLOB NOT NULL,
    PRIMARY KEY (execution, step)
);

-- The id is the order of delivery: the priority, highest first, and below it the order of publishing.
CREATE TABLE message (
    id         INTEGER PRIMARY KEY,
    retries    INTEGER NOT NULL,
    delivered  INTEGER NOT NULL, -- has been in a worker's hands
    not_before REAL    NOT NULL, -- 0: now
    body       BLOB    NOT NULL
);
CREATE INDEX message_later ON message (not_before) WHERE not_before > 0;

CREATE TABLE completion (
    id        INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again, so that a reader can go on from the last it saw
    execution TEXT NOT NULL UNIQUE,
    body      BLOB NOT NULL
);

CREATE TABLE dead_letter (
    id        INTEGER PRIMARY KEY,
    at        REAL    NOT NULL,
    reason    TEXT    NOT NULL,
    node      TEXT    NOT NULL,
    execution TEXT    NOT NULL,
    attempt   INTEGER NOT NULL,
    body      BLOB    NOT NULL
);
