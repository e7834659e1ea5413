"""Faults on demand: what a fault is, which of them are set, and plans of them."""
