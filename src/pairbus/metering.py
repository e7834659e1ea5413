"""How Azure meters an operation: by started units of 64 KB, and never less than one."""

UNIT_BYTES = 64 * 1024
#: Of a ping on the wire: each is as long as the others.
PING_BYTES = 156
#: Stands for the entity where an operation concerns none: no entity can have this name.
NAMESPACE = "$namespace"
#: Stands for namespace and entity where records were written to an object store.
RECORDS = "$records"


def units(size: int) -> int:
    """How many operations one that carries `size` bytes is billed as."""
    return 1 if size <= UNIT_BYTES else -(-size // UNIT_BYTES)
