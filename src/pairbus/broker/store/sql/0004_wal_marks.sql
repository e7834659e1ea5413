-- Which WAL came last, told twice, in turns: on a page that is in the WAL, and on one that is in the database alone. So an older
-- database under a newer WAL is found (`wal_marks.py`).
CREATE TABLE even_wal (
    number   INTEGER NOT NULL,          -- of the WAL that it was written to, each second one
    salt     INTEGER NOT NULL,          -- by which that WAL is known
    checksum INTEGER NOT NULL
);
INSERT INTO even_wal VALUES (0, 0, row_checksum(0, 0));
CREATE TABLE odd_wal (
    number   INTEGER NOT NULL,
    salt     INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
INSERT INTO odd_wal VALUES (1, 0, row_checksum(1, 0));
