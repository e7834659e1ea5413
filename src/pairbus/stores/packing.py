"""Objects that are compressed on their way: those whose names end in `.zst`, and no others.

Receipts have the same words in each row: packed they are a tenth or less, for half a microsecond each, and a
store takes them sooner. Other tools know the suffix, too.
"""

PACKED = ".zst"
#: What is larger is not to be packed. No more is unpacked either: a small object can hold gigabytes.
MOST_PACKED = 64 * 1024**2
_CODEC = "zstd"
_PIECE = 1024**2


def pack(name: str, data: bytes) -> bytes:
    """What is kept under a name."""
    if not name.endswith(PACKED):
        return data
    from pyarrow import compress  # late: it is slow to import, and whoever packs nothing need not have it

    return bytes(compress(data, codec=_CODEC, asbytes=True))


def unpack(name: str, kept: bytes) -> bytes:
    """What was put under a name. What is damaged comes as it is: its reader finds no row in it."""
    if not name.endswith(PACKED):
        return kept
    from pyarrow import BufferReader, CompressedInputStream

    data = bytearray()
    try:
        with CompressedInputStream(BufferReader(kept), _CODEC) as stream:
            while len(data) <= MOST_PACKED and (piece := stream.read(_PIECE)):
                data += piece
    except OSError:
        return kept
    return bytes(data) if 0 < len(data) <= MOST_PACKED else kept
