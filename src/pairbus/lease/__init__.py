"""The lease of a pair, by which one syphon works on it at a time, wherever it runs."""
