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
INSERT OR REPLACE INTO entity (path, kind, settings, created_at, updated_at, accessed_at, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: remove_entity
DELETE FROM entity WHERE path = ?;

-- name: put_rule
-- An updated rule keeps its row and so its turn among the others.
INSERT INTO rule (path, name, rule, checksum) VALUES (?, ?, ?, ?)
ON CONFLICT (path, name) DO UPDATE SET rule = excluded.rule, checksum = excluded.checksum;

-- name: remove_rule
DELETE FROM rule WHERE path = ? AND name = ?;

-- name: remove_rules
-- All rules of a subscription.
DELETE FROM rule WHERE path = ?;

-- name: add_place
-- The first message, number or state of a queue, sub-queue or topic.
INSERT INTO place (number, path, sequence_number, checksum) VALUES (?, ?, ?, ?);

-- name: advance_sequence
-- The last sequence number that was given out, where no message has it (any more).
UPDATE place SET sequence_number = ?, checksum = ? WHERE number = ?;

-- name: remove_place
DELETE FROM place WHERE number = ?;

-- == Writing messages ========================================================================================================

-- name: put_message
-- A message as it is at the end of its turn. Never one that is there already: the messages are counted. 0 stands for no session:
-- Python binds a None more slowly than all other values of the row together.
INSERT INTO message (
    key, turn, total, content_checksum, properties_checksum, state, delivery_count, size, enqueued_at, expires_at, scheduled_for,
    session_id, checksum, application_properties, envelope, body
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, nullif(?, 0), ?, ?, ?, ?);

-- name: put_large_message
-- The same with room for a body of so many bytes, which is written afterwards.
INSERT INTO message (
    key, turn, total, content_checksum, properties_checksum, state, delivery_count, size, enqueued_at, expires_at, scheduled_for,
    session_id, checksum, application_properties, envelope, body
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, nullif(?, 0), ?, ?, ?, zeroblob(?));

-- name: change_message
-- All that settlement can change of a message; the properties only if they have changed. A record that is not as it was written
-- has no checksum from then on, which the column refuses.
UPDATE message SET
    checksum = changed_checksum(
        checksum, key, turn, total, content_checksum, properties_checksum, state, delivery_count, size, enqueued_at,
        expires_at, scheduled_for, session_id, ?1, ?2, ?3, ?4
    ),
    properties_checksum = coalesce(?1, properties_checksum), state = ?2, delivery_count = ?3, size = ?4,
    application_properties = coalesce(?5, application_properties)
WHERE key = ?6;

-- name: remove_messages
-- Messages whose keys are neighbours; all of one place: from its number to the one before the next place's.
DELETE FROM message WHERE key BETWEEN ? AND ?;

-- name: set_session_state
INSERT OR REPLACE INTO session_state (place, session_id, state, updated_at, checksum) VALUES (?, ?, ?, ?, ?);

-- name: clear_session_state
DELETE FROM session_state WHERE place = ? AND session_id = ?;

-- name: remove_session_states
-- All session states of one place.
DELETE FROM session_state WHERE place = ?;

-- name: keep_duplicate
INSERT OR REPLACE INTO duplicate (place, message_id, until, checksum) VALUES (?, ?, ?, ?);

-- name: forget_duplicates
-- The ids whose time is over.
DELETE FROM duplicate WHERE place = ? AND until <= ?;

-- name: remove_duplicates
-- The whole history of one place.
DELETE FROM duplicate WHERE place = ?;

-- name: write_account
-- How far the store has come, where no message tells it.
UPDATE account SET turn = ?, total = ?, checksum = ? WHERE rowid = 1;

-- == Reading =================================================================================================================

-- name: read_account
SELECT identity, turn, total, checksum FROM account;

-- name: count_messages
-- How many there are, and what the one that came last tells: a bare column beside max() is of the row that has it.
SELECT count(*), max(turn), total FROM message;

-- name: read_newest
-- The highest key of a place.
SELECT max(key) FROM message WHERE key BETWEEN ? AND ?;

-- name: read_entities
-- A topic's path is shorter than those of its subscriptions, so it comes before them.
SELECT path, kind, settings, created_at, updated_at, accessed_at, checksum FROM entity ORDER BY length(path), path;

-- name: read_rules
-- In the order in which they were made.
SELECT path, name, rule, checksum FROM rule ORDER BY rowid;

-- name: read_places
SELECT number, path, sequence_number, checksum FROM place ORDER BY number;

-- name: read_duplicates
-- The oldest first, as they were seen. The signs keep SQLite from the index, which may be damaged and leave out some.
SELECT place, message_id, until, checksum FROM duplicate ORDER BY +place, +until;

-- name: read_session_states
SELECT place, session_id, state, updated_at, checksum FROM session_state ORDER BY place, session_id;

-- name: read_records
-- By place, and within it by sequence number: the order in which they wait.
SELECT
    key, turn, total, content_checksum, properties_checksum, state, delivery_count, size, enqueued_at, expires_at, scheduled_for,
    session_id, checksum
FROM message ORDER BY key;

-- name: read_messages
-- Some messages with their contents, by their keys. A body that has more bytes than the third number is read apart.
SELECT
    key, turn, total, content_checksum, properties_checksum, state, delivery_count, size, enqueued_at, expires_at, scheduled_for,
    session_id, checksum, application_properties, envelope, CASE WHEN length(body) <= ?3 THEN body END
FROM message WHERE key BETWEEN ?1 AND ?2;

-- The numbers of the last two WALs.

-- name: read_wal_marks
SELECT number, salt, checksum FROM even_wal UNION ALL SELECT number, salt, checksum FROM odd_wal;

-- name: mark_even_wal
UPDATE even_wal SET number = ?, salt = ?, checksum = ? WHERE rowid = 1;

-- name: mark_odd_wal
UPDATE odd_wal SET number = ?, salt = ?, checksum = ? WHERE rowid = 1;
