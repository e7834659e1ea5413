"""The clients of a pair as one fleet: one of them pings for all, and the others learn from it."""
