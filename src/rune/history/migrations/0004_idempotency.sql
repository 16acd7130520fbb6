-- Answers to requests with an Idempotency-Key, so that a repeated request gets the first one's answer.
CREATE TABLE idempotency (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    identity TEXT NOT NULL,
    holder TEXT NOT NULL,
    claimed_until DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    status INTEGER,
    headers TEXT,
    body TEXT,
    PRIMARY KEY (scope, key)
);

CREATE INDEX idempotency_expires_at ON idempotency (expires_at);
