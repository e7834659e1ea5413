"""The engine of an embedded namespace: what a broker decides, without I/O and without a clock.

The server gives it operations and the time; it answers with results or refuses, and keeps events for a store.
Start reading at `namespace`; the rules of a queue stand at the head of `queue`.
"""
