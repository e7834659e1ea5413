"""A message for filters to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pairbus.amqp.message import Properties


@dataclass
class Sample:
    properties: Properties = field(default_factory=Properties)
    application_properties: dict[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)


def sample(**application_properties: Any) -> Sample:
    return Sample(application_properties=application_properties)
