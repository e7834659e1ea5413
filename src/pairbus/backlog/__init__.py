"""The backlog queues of a pair as operators see them: made, checked, counted, looked through, redriven."""
