"""What a client keeps on disk, and in which form."""
