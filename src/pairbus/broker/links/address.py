"""Where a link points to: an entity, its management node, or the token node of the connection."""

from dataclasses import dataclass
from enum import Enum

from pairbus import words
from pairbus.broker.engine.names import entity_path

# Far longer than any path. Claims are looked for at each of its slashes: the work grows with its square.
MOST_ADDRESS = 1024


class NodeKind(Enum):
    """What stands at an address."""

    ENTITY = "entity"
    MANAGEMENT = "management"
    CBS = "cbs"


@dataclass(frozen=True, slots=True)
class LinkAddress:
    """The kind of node, and the path of the entity behind it ("" for the namespace itself)."""

    kind: NodeKind
    path: str

    @property
    def resource(self) -> str:
        """What a token must be for. One for an entity covers its management node too, not the other way."""
        return f"{self.path}/{words.MANAGEMENT}" if self.kind is NodeKind.MANAGEMENT else self.path


def parse_address(raw: str) -> LinkAddress:
    """Read an address as the SDKs write it: a whole URI (Python) or a bare path (JavaScript)."""
    path = entity_path(raw)
    lowered = path.lower()
    if lowered == words.CBS:
        return LinkAddress(NodeKind.CBS, "")
    if lowered == words.MANAGEMENT:
        return LinkAddress(NodeKind.MANAGEMENT, "")
    if lowered.endswith(f"/{words.MANAGEMENT}"):
        return LinkAddress(NodeKind.MANAGEMENT, path[: -len(words.MANAGEMENT) - 1])
    return LinkAddress(NodeKind.ENTITY, path)
