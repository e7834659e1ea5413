"""The administration API of a namespace: ATOM over HTTP, as the official administration clients speak it."""
