"""Entities that files declare."""
