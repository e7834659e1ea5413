"""The way of a send: entity, line, attempt, backlog, spool, sessions."""
