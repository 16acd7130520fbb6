-- People and what they may do: roles are 1 viewer, 2 operator, 3 editor, 4 admin.
CREATE TABLE account (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    password TEXT NOT NULL,
    role INTEGER NOT NULL,
    disabled INTEGER NOT NULL DEFAULT 0,
    created_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL,
    login_at DOUBLE PRECISION
);

-- Whoever changes accounts changes this row first, so that changes come one after another.
CREATE TABLE account_turn (id INTEGER PRIMARY KEY, turn BIGINT NOT NULL);
INSERT INTO account_turn (id, turn) VALUES (1, 0);

-- What a browser shows after a login; only a hash of it is kept.
CREATE TABLE session (
    hash TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    created_at DOUBLE PRECISION NOT NULL,
    seen_at DOUBLE PRECISION NOT NULL,
    address TEXT NOT NULL,
    agent TEXT NOT NULL
);
CREATE INDEX session_account ON session (account_id);

-- What a program shows; only a hash of it is kept.
CREATE TABLE token (
    id TEXT PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    role INTEGER NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION,
    used_at DOUBLE PRECISION
);
CREATE INDEX token_account ON token (account_id);

-- Who shows one of these may make the first account.
CREATE TABLE setup (hash TEXT PRIMARY KEY, expires_at DOUBLE PRECISION NOT NULL);

-- What was done, by whom; rows are added and never changed. Ids ascend with time.
CREATE TABLE audit (
    id TEXT PRIMARY KEY,
    at DOUBLE PRECISION NOT NULL,
    account_id TEXT NOT NULL,
    account TEXT NOT NULL,
    via TEXT NOT NULL,
    address TEXT NOT NULL,
    action TEXT NOT NULL,
    object TEXT NOT NULL,
    outcome TEXT NOT NULL,
    details TEXT NOT NULL
);
CREATE INDEX audit_object ON audit (object, id);

-- Credentials: the values only in `sealed`, under a key that is not in the database.
CREATE TABLE credential (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    fields TEXT NOT NULL,
    version INTEGER NOT NULL,
    sealed /* sqlite: BLOB */ /* postgres: BYTEA */ NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    rotated_at DOUBLE PRECISION NOT NULL,
    created_by TEXT NOT NULL
);

-- A known text under the same key: whoever cannot read it has another key.
CREATE TABLE vault (id INTEGER PRIMARY KEY, sealed /* sqlite: BLOB */ /* postgres: BYTEA */ NOT NULL);
