"""What can go wrong with the broker itself, as opposed to an operation that its engine refuses.

PairbusError
  BrokerError            the broker cannot start, or cannot go on
    StoreError           a namespace's store could not commit or be read
      StoreDamaged       it is not as it was written, or holds less than it did
    ControlError         the control address refused a request, or cannot be reached
"""

from pairbus.errors import PairbusError


class BrokerError(PairbusError):
    """The broker cannot start, or cannot go on."""


class StoreError(BrokerError):
    """A namespace's store could not commit or be read; nothing of the turn at hand was acknowledged."""


class StoreDamaged(StoreError):
    """A store is not as it was written, or holds less than was committed. The text says what can be saved."""


class ControlError(BrokerError):
    """The control address refused a request, or cannot be reached."""
