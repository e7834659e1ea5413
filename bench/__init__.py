"""Benchmarks of the embedded broker; `python -m bench --help`."""
