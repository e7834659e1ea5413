"""How a client that opens a connection says who it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pairbus.amqp.events import SaslInitReceived
from pairbus.broker.access.grants import Grant, TokenRejected
from pairbus.broker.access.policies import Policies
from pairbus.broker.access.tokens import check_plain
from pairbus.broker.bounded_log import BoundedLog

bounded = BoundedLog(logging.getLogger(__name__))


def sign_in(
    event: SaslInitReceived,
    policies: Policies,
    take: Callable[[Grant, str], None],
    fields: dict[str, Any],
) -> bool:
    """Whether a client may go on. Who comes without a name may, but attaches nothing before it has put a
    token. `take` gets the grant of who has one; `fields` tell the log who it is.
    """
    if event.mechanism != "PLAIN":
        return True
    try:
        take(check_plain(event.initial_response or b"", policies=policies), "")
    except TokenRejected as rejected:
        bounded.tell(logging.WARNING, "sasl refused", {**fields, "reason": str(rejected)})
        return False
    return True
