-- What starts executions by itself: a webhook has a token, a schedule has a time at which it is due next.
CREATE TABLE workflow_trigger (
    id TEXT PRIMARY KEY,
    workflow_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    config TEXT NOT NULL,
    version INTEGER NOT NULL,
    token_hash TEXT UNIQUE,
    -- The token and the secret, so that the one can be shown and the other be compared.
    sealed /* sqlite: BLOB */ /* postgres: BYTEA */,
    next_due DOUBLE PRECISION,
    -- Who moved `next_due` last.
    claim TEXT,
    created_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL,
    created_by TEXT NOT NULL
);
CREATE INDEX workflow_trigger_workflow ON workflow_trigger (workflow_id, id);
CREATE INDEX workflow_trigger_due ON workflow_trigger (next_due) WHERE enabled = 1;

-- Due times that somebody has taken on. What is not settled when its claim runs out is taken on by another.
CREATE TABLE firing (
    trigger_id TEXT NOT NULL,
    due DOUBLE PRECISION NOT NULL,
    execution_id TEXT NOT NULL,
    claimed_until DOUBLE PRECISION NOT NULL,
    settled_at DOUBLE PRECISION,
    error TEXT,
    PRIMARY KEY (trigger_id, due)
);
CREATE INDEX firing_open ON firing (claimed_until) WHERE settled_at IS NULL;

-- Keys that sign what leaves the master, sealed like credentials.
CREATE TABLE signing_key (name TEXT PRIMARY KEY, sealed /* sqlite: BLOB */ /* postgres: BYTEA */ NOT NULL);
