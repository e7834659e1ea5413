"""Why a request to the administration API is refused, as an HTTP status and a text.

PairbusError
  AdminRefused           status and text of the answer
    Unauthorized         401: no token, or a bad one
      ManageMissing      401: one without the Manage claim
"""

from pairbus.errors import PairbusError


class AdminRefused(PairbusError):
    """A request that cannot be carried out; the text says how to mend it."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Unauthorized(AdminRefused):
    """The request carries no token that allows it."""

    def __init__(self, detail: str) -> None:
        super().__init__(401, detail)


class ManageMissing(Unauthorized):
    """The token is a good one, but has not the Manage claim."""
