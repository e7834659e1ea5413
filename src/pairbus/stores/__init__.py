"""Where records of many hosts come together: a directory that all of them share, or an object store."""
