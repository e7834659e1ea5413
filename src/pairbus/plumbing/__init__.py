"""What every room needs and none should make for itself."""
