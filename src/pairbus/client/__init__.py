"""Send availability on the official SDK: the paired client, asynchronous at heart with a synchronous face."""
