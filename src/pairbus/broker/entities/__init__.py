"""Entities that a file declares: the official emulator's `Config.json`, or a TOML of our own."""
