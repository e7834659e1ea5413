"""Two embedded namespaces for each test."""

from collections.abc import Iterator

import pytest

from .bench import Bench, opened


@pytest.fixture
def bench() -> Iterator[Bench]:
    with opened() as made:
        yield made
