"""Embedded Service Bus namespaces that the official SDKs take for the real thing."""

from pairbus.broker.broker import Broker
from pairbus.broker.connections import ConnectionInfo
from pairbus.broker.counters import Kind, Tally
from pairbus.broker.engine.settings import EntityStatus, QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.errors import BrokerError, ControlError, StoreError
from pairbus.broker.faults import Fault, FaultKind
from pairbus.broker.handle import Faults, NamespaceHandle
from pairbus.broker.plan import FaultPlan
from pairbus.broker.policies import Policy

__all__ = [
    "Broker",
    "BrokerError",
    "ConnectionInfo",
    "ControlError",
    "EntityStatus",
    "Fault",
    "FaultKind",
    "FaultPlan",
    "Faults",
    "Kind",
    "NamespaceHandle",
    "Policy",
    "QueueSettings",
    "StoreError",
    "SubscriptionSettings",
    "Tally",
    "TopicSettings",
]
