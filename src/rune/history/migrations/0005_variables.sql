-- Variables of the execution that a step has set: small ones here, others among the values, and in which turn that was.
ALTER TABLE history_step ADD COLUMN sets TEXT;
ALTER TABLE history_step ADD COLUMN sets_hash TEXT;
ALTER TABLE history_step ADD COLUMN sets_size BIGINT;
ALTER TABLE history_step ADD COLUMN turn BIGINT;

CREATE INDEX history_step_turn ON history_step (execution_id, turn) WHERE turn IS NOT NULL;
