-- Sessions can be listed by when their state was last set, which has to outlive a restart too.
ALTER TABLE session_state ADD COLUMN updated_at REAL NOT NULL DEFAULT 0;
