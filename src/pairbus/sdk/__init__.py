"""The official SDK as every room that calls it needs it: sides, credentials, administration, TLS, ends."""
