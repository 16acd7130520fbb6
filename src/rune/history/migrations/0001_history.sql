-- Workflows and their versions, executions and what happened in them.
-- Times are seconds since the epoch. The engine's own tables may be in the same file, so names differ from theirs.

CREATE TABLE definition (
    hash       TEXT PRIMARY KEY,
    text       TEXT NOT NULL,
    used_at    DOUBLE PRECISION NOT NULL
);

CREATE TABLE workflow (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    description TEXT NOT NULL DEFAULT '',
    format      TEXT NOT NULL,
    version     INTEGER NOT NULL,
    published   INTEGER,
    created_at  DOUBLE PRECISION NOT NULL,
    updated_at  DOUBLE PRECISION NOT NULL,
    deleted_at  DOUBLE PRECISION
);
CREATE INDEX workflow_by_name ON workflow (name, id) WHERE deleted_at IS NULL;

-- A version never changes.
CREATE TABLE workflow_version (
    workflow_id TEXT NOT NULL REFERENCES workflow (id),
    version     INTEGER NOT NULL,
    hash        TEXT NOT NULL REFERENCES definition (hash),
    format      TEXT NOT NULL,
    source      TEXT,
    note        TEXT NOT NULL DEFAULT '',
    author      TEXT NOT NULL DEFAULT '',
    created_at  DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (workflow_id, version)
);
CREATE INDEX workflow_version_by_hash ON workflow_version (hash);

CREATE TABLE history_execution (
    id               TEXT PRIMARY KEY,
    workflow_id      TEXT,
    workflow_version INTEGER,
    definition_hash  TEXT,
    name             TEXT NOT NULL DEFAULT '',
    status           TEXT NOT NULL,
    trigger          TEXT NOT NULL,
    input            TEXT,
    priority         INTEGER NOT NULL DEFAULT 0,
    created_at       DOUBLE PRECISION NOT NULL,
    started_at       DOUBLE PRECISION,
    ended_at         DOUBLE PRECISION,
    duration_ms      BIGINT,
    error            TEXT,
    reason           TEXT,
    result           TEXT,
    result_refs      TEXT,
    parent           TEXT,
    root             TEXT NOT NULL,
    labels           TEXT,
    created_by       TEXT,
    -- How many events it has; rows that changed carry the number it had then.
    seq              BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX history_execution_by_time ON history_execution (created_at, id);
CREATE INDEX history_execution_by_workflow ON history_execution (workflow_id, created_at, id);
CREATE INDEX history_execution_by_parent ON history_execution (parent) WHERE parent IS NOT NULL;
CREATE INDEX history_execution_by_definition ON history_execution (definition_hash);
CREATE INDEX history_execution_alive ON history_execution (created_at, id) WHERE ended_at IS NULL;
CREATE INDEX history_execution_ended ON history_execution (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE history_step (
    execution_id TEXT NOT NULL,
    -- The innermost item it belongs to; the splits tell the rest of the lineage. In the key it keeps what is
    -- written together in one place: ids of steps are hashes.
    barrier      TEXT NOT NULL,
    item_index   BIGINT NOT NULL,
    step         TEXT NOT NULL,
    node_id      TEXT NOT NULL,
    status       TEXT NOT NULL,
    attempt      INTEGER NOT NULL,
    at           DOUBLE PRECISION NOT NULL,
    started_at   DOUBLE PRECISION NOT NULL,
    ended_at     DOUBLE PRECISION,
    duration_ms  BIGINT,
    port         TEXT,
    output       TEXT,
    output_hash  TEXT,
    output_size  BIGINT,
    error        TEXT,
    error_code   TEXT,
    details      TEXT,
    attempts     TEXT,
    seq          BIGINT NOT NULL,
    PRIMARY KEY (execution_id, barrier, item_index, step)
) /* sqlite: WITHOUT ROWID */;

CREATE TABLE history_node (
    execution_id TEXT NOT NULL,
    node_id      TEXT NOT NULL,
    running      BIGINT NOT NULL,
    waiting      BIGINT NOT NULL,
    success      BIGINT NOT NULL,
    failed       BIGINT NOT NULL,
    stopped      BIGINT NOT NULL,
    last_at      DOUBLE PRECISION NOT NULL,
    resume_at    DOUBLE PRECISION,
    seq          BIGINT NOT NULL,
    PRIMARY KEY (execution_id, node_id)
) /* sqlite: WITHOUT ROWID */;

CREATE TABLE history_split (
    execution_id TEXT NOT NULL,
    barrier      TEXT NOT NULL,
    node_id      TEXT NOT NULL,
    -- The item around it: none for a split of the execution itself.
    scope        TEXT NOT NULL,
    scope_item   BIGINT NOT NULL,
    total        BIGINT,
    -- Items that were heard of, by state; the others are pending, or skipped once it has closed.
    running      BIGINT NOT NULL,
    succeeded    BIGINT NOT NULL,
    failed       BIGINT NOT NULL,
    skipped      BIGINT NOT NULL,
    -- What its aggregator told last: items that ended, and those of them that brought nothing.
    processed    BIGINT NOT NULL,
    left_out     BIGINT NOT NULL,
    -- The node that gathered it: its own, where there is no aggregator.
    closed_by    TEXT,
    seq          BIGINT NOT NULL,
    PRIMARY KEY (execution_id, barrier)
) /* sqlite: WITHOUT ROWID */;

CREATE TABLE history_item (
    execution_id TEXT NOT NULL,
    barrier      TEXT NOT NULL,
    item_index   BIGINT NOT NULL,
    state        TEXT NOT NULL,
    label        TEXT NOT NULL,
    key          TEXT NOT NULL,
    at           DOUBLE PRECISION NOT NULL,
    error_code   TEXT,
    error_node   TEXT,
    seq          BIGINT NOT NULL,
    PRIMARY KEY (execution_id, barrier, item_index)
) /* sqlite: WITHOUT ROWID */;

-- Each row holds the events first_seq … last_seq, as a JSON array, compressed where that pays.
CREATE TABLE history_event (
    execution_id TEXT NOT NULL,
    first_seq    BIGINT NOT NULL,
    last_seq     BIGINT NOT NULL,
    data         BYTEA NOT NULL,
    PRIMARY KEY (execution_id, first_seq)
) /* sqlite: WITHOUT ROWID */;

CREATE TABLE history_value (
    execution_id TEXT NOT NULL,
    hash         TEXT NOT NULL,
    data         BYTEA NOT NULL,
    PRIMARY KEY (execution_id, hash)
) /* sqlite: WITHOUT ROWID */;
