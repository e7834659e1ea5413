"""Embedded Service Bus namespaces that the official SDKs take for the real thing."""

from pairbus.fault_kinds import FaultKind

from .access.policies import Policy
from .broker import Broker
from .connections import ConnectionInfo
from .counters import OperationKind, OperationTally
from .engine.errors import Refused
from .engine.settings import EntityStatus, QueueSettings, SubscriptionSettings, TopicSettings
from .engine.tiers import Strictness, Tier
from .errors import BrokerError, ControlError, StoreDamaged, StoreError
from .faults.fault import Fault
from .faults.plan import FaultPlan
from .gate import ConnectionLimits
from .handle import Faults, NamespaceHandle
from .links.idleness import IdleTimeouts

__all__ = [
    "Broker",
    "BrokerError",
    "ConnectionInfo",
    "ConnectionLimits",
    "ControlError",
    "EntityStatus",
    "Fault",
    "FaultKind",
    "FaultPlan",
    "Faults",
    "IdleTimeouts",
    "NamespaceHandle",
    "OperationKind",
    "OperationTally",
    "Policy",
    "QueueSettings",
    "Refused",
    "StoreDamaged",
    "StoreError",
    "Strictness",
    "SubscriptionSettings",
    "Tier",
    "TopicSettings",
]
