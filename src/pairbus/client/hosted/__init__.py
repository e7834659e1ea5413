"""The syphon that a client hosts, and how it reaches the namespaces of its pair."""
