-- Every statement of the store but the pragmas. A block begins with `-- name:`; its comment says what it is for, question
-- marks are bound in their order.

-- name: begin
-- The write lock at once: a turn that cannot be written fails before anything is.
BEGIN IMMEDIATE;

-- name: commit
-- The one moment at which a turn becomes true.
COMMIT;

-- name: roll_back
ROLLBACK;

-- == Writing entities ========================================================================================================

-- name: put_entity
INSERT OR REPLACE INTO entity (path, kind, settings, created_at, updated_at, accessed_at)
VALUES (?, ?, ?, ?, ?, ?);

-- name: remove_entity
DELETE FROM entity WHERE path = ?;

-- name: put_rule
-- An updated rule keeps its row and so its turn among the others.
INSERT INTO rule (path, name, rule) VALUES (?, ?, ?)
ON CONFLICT (path, name) DO UPDATE SET rule = excluded.rule;

-- name: remove_rule
DELETE FROM rule WHERE path = ? AND name = ?;

-- name: remove_rules
-- All rules of a subscription.
DELETE FROM rule WHERE path = ?;

-- name: add_place
-- The first message, number or state of a queue, sub-queue or topic.
INSERT INTO place (number, path) VALUES (?, ?);

-- name: advance_sequence
-- The last sequence number that was given out, where no message has it (any more).
UPDATE place SET sequence_number = ? WHERE number = ?;

-- name: remove_place
DELETE FROM place WHERE number = ?;

-- == Writing messages ========================================================================================================

-- name: put_message
-- A message as it is at the end of its turn. Replacing makes a turn that is written twice harmless.
INSERT OR REPLACE INTO message (
    key, state, delivery_count, enqueued_sequence_number, enqueued_at, expires_at, scheduled_for, message_id, session_id,
    partition_key, durable, priority, ttl_ms, annotations, properties, application_properties, body, size,
    dead_letter_source, hops
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: change_message
-- All that settlement can change of a message.
UPDATE message SET state = ?, delivery_count = ?, application_properties = ?, size = ? WHERE key = ?;

-- name: remove_message
DELETE FROM message WHERE key = ?;

-- name: remove_messages
-- All messages of one place: the keys from its number to the one before the next place's.
DELETE FROM message WHERE key BETWEEN ? AND ?;

-- name: set_session_state
INSERT OR REPLACE INTO session_state (place, session_id, state, updated_at) VALUES (?, ?, ?, ?);

-- name: clear_session_state
DELETE FROM session_state WHERE place = ? AND session_id = ?;

-- name: remove_session_states
-- All session states of one place.
DELETE FROM session_state WHERE place = ?;

-- name: keep_duplicate
INSERT OR REPLACE INTO duplicate (place, message_id, until) VALUES (?, ?, ?);

-- name: forget_duplicates
-- The ids whose time is over.
DELETE FROM duplicate WHERE place = ? AND until <= ?;

-- name: remove_duplicates
-- The whole history of one place.
DELETE FROM duplicate WHERE place = ?;

-- == Reading =================================================================================================================

-- name: read_places
SELECT path, number, sequence_number FROM place;

-- name: read_newest
-- The highest key of a place.
SELECT max(key) FROM message WHERE key BETWEEN ? AND ?;

-- name: read_entities
-- A topic's path is shorter than those of its subscriptions, so it comes before them.
SELECT kind, path, settings, created_at, updated_at, accessed_at FROM entity ORDER BY length(path), path;

-- name: read_rules
-- In the order in which they were made.
SELECT path, rule FROM rule ORDER BY rowid;

-- name: read_sequences
SELECT path, sequence_number FROM place ORDER BY number;

-- name: read_duplicates
-- The oldest first, as they were seen.
SELECT path, message_id, until FROM duplicate JOIN place ON place.number = duplicate.place ORDER BY place, until;

-- name: read_session_states
SELECT path, session_id, state, updated_at
FROM session_state JOIN place ON place.number = session_state.place ORDER BY place, session_id;

-- name: read_messages
-- By place, and within it by sequence number: the order in which they wait.
SELECT
    key, state, delivery_count, enqueued_sequence_number, enqueued_at, expires_at, scheduled_for, message_id, session_id,
    partition_key, durable, priority, ttl_ms, annotations, properties, application_properties, body, size,
    dead_letter_source, hops
FROM message ORDER BY key;
