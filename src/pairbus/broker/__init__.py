"""Embedded Service Bus namespaces."""
