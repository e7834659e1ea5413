import pickle

import pytest

from pairbus.errors import PairbusError
from pairbus.pairing import errors

EXAMPLES: list[PairbusError] = [
    errors.BacklogUnavailableError(10, retry_after=4.2, last_failure="ServiceBusConnectionError"),
    errors.BacklogUnavailableError(1),
    errors.PrimaryEntityFault("orders", "MessagingEntityNotFoundError"),
    errors.PairFaultedError("secondary", "closed"),
    errors.ScheduledInBacklogError([-1, -2, -3, -4, -5, -6]),
    errors.MessageTooLargeForBacklog("orders", message_id="m1", size=262_400, limit=262_144),
    errors.ReservedPropertyError("x-ms-path"),
    errors.MalformedEnvelope("it has no property x-ms-path"),
    errors.SamePairError("Primary and secondary are the same endpoint. Give another one"),
    errors.ForkedClientError(10, 11),
]
# What each text must say so that a reader can mend the matter.
MENDING = {
    "BacklogUnavailableError": "send again with the same message_id",
    "PrimaryEntityFault": "mark_path_healthy('orders')",
    "PairFaultedError": "make a new one",
    "ScheduledInBacklogError": "peek the entity",
    "MessageTooLargeForBacklog": "Send at least 256 bytes less",
    "ReservedPropertyError": "Rename it",
    "MalformedEnvelope": "re-drive",
    "SamePairError": "Give another",
    "ForkedClientError": "after the fork",
}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickle_with_its_fields(error: PairbusError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_a_text_says_how_to_mend_it(error: PairbusError) -> None:
    assert MENDING[type(error).__name__] in str(error)


def test_no_error_is_left_out() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert {type(error).__name__ for error in EXAMPLES} == defined == set(MENDING)
