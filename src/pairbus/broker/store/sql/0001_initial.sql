-- The first shape of a namespace's store. One row of `message` is one message of one queue; what is not here (locks, credit,
-- connections) ends with the process.

-- "Pbus": tells a store from any other SQLite file.
PRAGMA application_id = 0x50627573;

-- Queues, topics and subscriptions. `settings` is JSON with the names of the settings' fields.
CREATE TABLE entity (
    path        TEXT PRIMARY KEY,       -- canonical spelling; a subscription's is topic/Subscriptions/name
    kind        TEXT NOT NULL,          -- queue, topic or subscription
    settings    TEXT NOT NULL,
    created_at  REAL NOT NULL,          -- Unix seconds, as all times here
    updated_at  REAL NOT NULL,
    accessed_at REAL NOT NULL
) WITHOUT ROWID;

-- The rules of subscriptions, in the order in which they were made.
CREATE TABLE rule (
    path TEXT NOT NULL,                 -- of the subscription
    name TEXT NOT NULL,                 -- in lower case, since names of rules know none; the spelling is in the JSON
    rule TEXT NOT NULL,                 -- JSON
    PRIMARY KEY (path, name)
);

-- Every place that can hold messages: queues, subscriptions, their sub-queues, and topics for what is scheduled.
CREATE TABLE place (
    number          INTEGER PRIMARY KEY,           -- a multiple of 2^44
    path            TEXT NOT NULL UNIQUE,
    sequence_number INTEGER NOT NULL DEFAULT 0     -- the last one given out, unless a message has a higher one
);

-- Key: number of the place + sequence number. One integer means one tree to write to instead of a table and an index, and
-- messages of one place lie side by side in their order.
--
-- Where a value may be missing, a number that cannot occur stands for it: this row is written for every message, and Python
-- binds a None twelve times as slowly as a number.
CREATE TABLE message (
    key                      INTEGER PRIMARY KEY,
    state                    INTEGER NOT NULL,     -- 0 active, 1 deferred, 2 scheduled
    delivery_count           INTEGER NOT NULL,
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
    annotations              BLOB NOT NULL,        -- an AMQP map; empty: none
    properties               BLOB NOT NULL,        -- this and the next two: AMQP sections as they came
    application_properties   BLOB NOT NULL,
    body                     BLOB NOT NULL,
    size                     INTEGER NOT NULL,
    dead_letter_source       TEXT NOT NULL,        -- empty: it was never dead-lettered
    hops                     INTEGER NOT NULL
);

-- The state that applications keep with a session.
CREATE TABLE session_state (
    place      INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    state      BLOB NOT NULL,
    PRIMARY KEY (place, session_id)
) WITHOUT ROWID;

-- Message ids that are duplicates until a time.
CREATE TABLE duplicate (
    place      INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    until      REAL NOT NULL,
    PRIMARY KEY (place, message_id)
) WITHOUT ROWID;
CREATE INDEX duplicate_by_time ON duplicate (place, until);
