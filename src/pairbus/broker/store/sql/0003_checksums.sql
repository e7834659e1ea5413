-- Each row gets a checksum, and each turn a number, so that damage is found. The functions are those of `checksums.py`.

-- One row: the store's identity, and how far it has come, unless a message tells of a later turn (see `message.turn`).
CREATE TABLE account (
    identity TEXT NOT NULL,             -- 32 hexadecimal digits, never changed
    turn     INTEGER NOT NULL,          -- the number of the turn that wrote this
    total    INTEGER NOT NULL,          -- how many messages there were after it
    checksum INTEGER NOT NULL
);
INSERT INTO account SELECT identity, 0, total, row_checksum(identity, 0, total)
FROM (SELECT lower(hex(randomblob(16))) AS identity, (SELECT count(*) FROM message) AS total);

ALTER TABLE entity ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE entity SET checksum = row_checksum(path, kind, settings, created_at, updated_at, accessed_at);
ALTER TABLE rule ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE rule SET checksum = row_checksum(path, name, rule);
ALTER TABLE place ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE place SET checksum = row_checksum(number, path, sequence_number);
ALTER TABLE session_state ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE session_state SET checksum = row_checksum(place, session_id, state, updated_at);
ALTER TABLE duplicate ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE duplicate SET checksum = row_checksum(place, message_id, until);

-- Made anew. First what is short and decides (the record of a message), where it is found without reading the rest; then what
-- only receivers want: the application properties, which a settlement can change, and the content, which never changes. Most of
-- that is packed into one value (`rows.py`), since this row is written for every message, and each column costs.
ALTER TABLE message RENAME TO former_message;
CREATE TABLE message (
    key                    INTEGER PRIMARY KEY,
    turn                   INTEGER NOT NULL,     -- the number of the turn that brought it
    total                  INTEGER NOT NULL,     -- how many messages there were after that turn
    content_checksum       INTEGER NOT NULL,     -- of envelope and body
    properties_checksum    INTEGER NOT NULL,     -- of application_properties
    state                  INTEGER NOT NULL,     -- 0 active, 1 deferred, 2 scheduled
    delivery_count         INTEGER NOT NULL,
    size                   INTEGER NOT NULL,
    enqueued_at            REAL NOT NULL,
    expires_at             REAL NOT NULL,        -- infinity: never
    scheduled_for          REAL NOT NULL,        -- minus infinity: not scheduled
    session_id             TEXT,
    checksum               INTEGER NOT NULL,     -- of the record: of all that stands before it
    application_properties BLOB NOT NULL,        -- an AMQP section as it came, or was changed
    envelope               BLOB NOT NULL,        -- header, ids, annotations, properties
    body                   BLOB NOT NULL         -- AMQP sections as they came
);
INSERT INTO message
SELECT
    key, 0, 0, content_checksum(envelope, body), properties_checksum(application_properties),
    state, delivery_count, size, enqueued_at, expires_at, scheduled_for, session_id,
    record_checksum(
        key, 0, 0, content_checksum(envelope, body), properties_checksum(application_properties),
        state, delivery_count, size, enqueued_at, expires_at, scheduled_for, session_id
    ),
    application_properties, envelope, body
FROM (
    SELECT
        *,
        pack_envelope(
            enqueued_sequence_number, durable, priority, ttl_ms, hops, message_id, partition_key,
            dead_letter_source, annotations, properties, length(body)
        ) AS envelope
    FROM former_message
) ORDER BY key;
DROP TABLE former_message;
