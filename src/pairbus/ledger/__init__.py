"""Records that many processes write side by side: segment files, closed by a rename."""
