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

-- Made anew: the short columns come first, where they are found without reading the body.
ALTER TABLE message RENAME TO former_message;
CREATE TABLE message (
    key                      INTEGER PRIMARY KEY,
    turn                     INTEGER NOT NULL,     -- the number of the turn that brought it
    total                    INTEGER NOT NULL,     -- how many messages there were after that turn
    checksum                 INTEGER NOT NULL,     -- of all that never changes
    change_checksum          INTEGER NOT NULL,     -- of state, delivery_count, size and application_properties
    state                    INTEGER NOT NULL,     -- 0 active, 1 deferred, 2 scheduled
    delivery_count           INTEGER NOT NULL,
    size                     INTEGER NOT NULL,
    enqueued_sequence_number INTEGER NOT NULL,
    enqueued_at              REAL NOT NULL,
    expires_at               REAL NOT NULL,        -- infinity: never
    scheduled_for            REAL NOT NULL,        -- minus infinity: not scheduled
    message_id               TEXT NOT NULL,
    session_id               TEXT,
    partition_key            TEXT,
    durable                  INTEGER NOT NULL,     -- this and the next two: the header as it came; -1: not there
    priority                 INTEGER NOT NULL,
    ttl_ms                   INTEGER NOT NULL,
    hops                     INTEGER NOT NULL,
    dead_letter_source       TEXT NOT NULL,        -- empty: it was never dead-lettered
    annotations              BLOB NOT NULL,        -- an AMQP map; empty: none
    properties               BLOB NOT NULL,        -- this and the next two: AMQP sections as they came
    application_properties   BLOB NOT NULL,
    body                     BLOB NOT NULL
);
INSERT INTO message
SELECT
    key, 0, 0,
    message_checksum(
        key, 0, 0, enqueued_sequence_number, enqueued_at, expires_at, scheduled_for, message_id, session_id, partition_key,
        durable, priority, ttl_ms, annotations, properties, body, dead_letter_source, hops
    ),
    change_checksum(key, state, delivery_count, size, application_properties),
    state, delivery_count, size, enqueued_sequence_number, enqueued_at, expires_at, scheduled_for, message_id, session_id,
    partition_key, durable, priority, ttl_ms, hops, dead_letter_source, annotations, properties, application_properties, body
FROM former_message ORDER BY key;
DROP TABLE former_message;
