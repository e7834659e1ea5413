"""Where the word of a namespace is kept: one SQLite file, its rows and its SQL."""
