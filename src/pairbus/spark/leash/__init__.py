"""The leash by which the driver holds every pump: over sockets or files, both of its ends."""
