"""What markers declare, beside what the files of a broker do."""

import pytest

from pairbus.broker import Broker
from pairbus.broker.entities.applying import declare_entities
from pairbus.broker.entities.declaration import DeclaredEntities


def declare(broker: Broker, declared: DeclaredEntities) -> None:
    """Let every namespace have it, and what its files say."""
    for name in broker:
        wanted = broker._entities.declared(name).together_with(declared)
        if refused := declare_entities(broker[name], wanted).refused:
            told = "; ".join(f"{path}: {reason}" for path, reason in refused.items())
            raise pytest.UsageError(f"the marker pairbus: {told}")
