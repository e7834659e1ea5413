import pickle

import pytest

from pairbus import conditions
from pairbus.amqp import errors
from pairbus.errors import PairbusError


@pytest.mark.parametrize(
    "error",
    [
        errors.ProtocolError(conditions.NOT_FOUND, "no such queue"),
        errors.DecodeError("broken"),
        errors.SessionViolation(conditions.UNATTACHED_HANDLE, "handle 3"),
        errors.EncodeError("too large"),
        errors.UsageError("begin first"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickle(error: PairbusError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_conditions_are_those_of_the_standard_and_of_the_service() -> None:
    known = [value for name, value in vars(conditions).items() if name.isupper()]
    assert len(known) == len(set(known)) > 35
    assert all(value.startswith(("amqp:", "com.microsoft:")) for value in known)
