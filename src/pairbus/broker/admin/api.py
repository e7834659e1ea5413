"""The administration API: a request in, a response out, no I/O and no clock.

What the engine refuses becomes an HTTP status and an `Error` document; the table below says which. Clients
tell some refusals apart by a sub-code in the text (40901 and 40301 mean more than their status), so each text
begins with the plain one of its status.
"""

from collections.abc import Callable
from typing import Final

from pairbus import conditions
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.namespace import Namespace

from . import entities, subscriptions
from .address import ResourceAddress, ResourceKind, parse_address
from .atom import DESCRIPTION_SPACES, AtomEntry, error_response, origin_of
from .call import AdminCall, Authorize, check_rights
from .duration import format_instant
from .errors import AdminRefused, ManageMissing
from .exchange import HttpRequest, Response
from .markup import branch, leaf

_STATUS: Final = {
    conditions.NOT_FOUND: 404,
    conditions.ENTITY_ALREADY_EXISTS: 409,
    conditions.UNAUTHORIZED: 401,
    conditions.AUTH_FAILED: 401,
    conditions.RESOURCE_LIMIT: 403,
    conditions.SERVER_BUSY: 503,
    conditions.INTERNAL_ERROR: 500,
}
# Everything else that the engine refuses is something wrong with the request.
_OTHERWISE: Final = 400


def status_of(condition: str) -> int:
    """The HTTP status that says what an AMQP condition says."""
    return _STATUS.get(condition, _OTHERWISE)


class AdminApi:
    """Administers one namespace. It keeps nothing of its own, so that one can be made for every request."""

    def __init__(self, namespace: Namespace, *, authorize: Authorize | None = None) -> None:
        """`authorize` raises any `PairbusError`, whose text becomes that of a 401."""
        self._namespace = namespace
        self._authorize = authorize

    def handle(self, request: HttpRequest, now: float) -> Response:
        """Carry out a request; whatever it holds, the answer is a response."""
        try:
            return self._carry_out(request, now)
        except ManageMissing as missing:
            return error_response(missing.status, missing.detail)  # whose text is told as it is
        except AdminRefused as refused:
            return refusal(refused.status, refused.detail)
        except Refused as refused:
            return refusal(status_of(refused.condition), refused.description)

    def _carry_out(self, request: HttpRequest, now: float) -> Response:
        try:
            address = parse_address(request.target)
        except AdminRefused:
            check_rights(self._authorize, request, request.path)
            raise
        methods = _ROUTES[address.kind]
        act = methods.get(request.method)
        origin = origin_of(request, namespace=self._namespace.name, api_version=address.api_version)
        call = AdminCall(
            namespace=self._namespace,
            request=request,
            address=address,
            origin=origin,
            now=now,
            authorize=self._authorize,
        )
        try:
            # What is checked is what is acted upon: the address as it was read, not as it was written.
            check_rights(self._authorize, request, address.path)
        except ManageMissing as missing:
            if request.method == "GET" and address.kind is ResourceKind.ENTITY and not self._exists(address):
                return call.reply_nothing()
            raise ManageMissing(_lacking(request.method, address, origin.host)) from missing
        if act is None:
            raise AdminRefused(405, f"{request.method} is not possible here; {' and '.join(methods)} are.")
        return act(call)

    def _exists(self, address: ResourceAddress) -> bool:
        try:
            self._namespace.node(address.entity)
        except Refused:
            return False
        return True


def _describe_namespace(call: AdminCall) -> Response:
    name, sku = call.namespace.name, call.namespace.limits.sku
    created_at = call.namespace.created_at  # of itself nothing is ever modified
    texts = {
        "CreatedTime": format_instant(created_at),
        "MessagingSKU": sku,
        "ModifiedTime": format_instant(created_at),
        "Name": name,
        "NamespaceType": "Messaging",
    }
    if sku == "Premium":
        texts["MessagingUnits"] = "1"
    leaves = [leaf(element, text) for element, text in texts.items()]
    properties = branch("NamespaceInfo", leaves, DESCRIPTION_SPACES)
    return call.reply(AtomEntry("$namespaceinfo", name, properties, created_at, created_at))


_ROUTES: Final[dict[ResourceKind, dict[str, Callable[[AdminCall], Response]]]] = {
    ResourceKind.ROOT: {"GET": AdminCall.reply_nothing},
    ResourceKind.NAMESPACE: {"GET": _describe_namespace},
    ResourceKind.QUEUES: {"GET": entities.list_queues},
    ResourceKind.TOPICS: {"GET": entities.list_topics},
    ResourceKind.ENTITY: {
        "GET": entities.get_entity,
        "PUT": entities.put_entity,
        "DELETE": entities.delete_entity,
    },
    ResourceKind.SUBSCRIPTIONS: {"GET": subscriptions.list_subscriptions},
    ResourceKind.SUBSCRIPTION: {
        "GET": subscriptions.get_subscription,
        "PUT": subscriptions.put_subscription,
        "DELETE": subscriptions.delete_subscription,
    },
    ResourceKind.RULES: {"GET": subscriptions.list_rules},
    ResourceKind.RULE: {
        "GET": subscriptions.get_rule,
        "PUT": subscriptions.put_rule,
        "DELETE": subscriptions.delete_rule,
    },
}

# The rights that a token for Manage has, and what is done to subscriptions and rules, in the service's words.
_RIGHTS: Final = {"PUT": "EntityWrite", "DELETE": "EntityDelete"}
_VERBS: Final = {"PUT": "CreateOrUpdate", "DELETE": "Delete"}
_NOUNS: Final = {
    ResourceKind.SUBSCRIPTION: "Subscription",
    ResourceKind.SUBSCRIPTIONS: "Subscriptions",
    ResourceKind.RULE: "Rule",
    ResourceKind.RULES: "Rules",
}


def _lacking(method: str, address: ResourceAddress, host: str) -> str:
    """Clients look for these very texts."""
    noun = _NOUNS.get(address.kind)
    if noun is not None:
        verb = "Enumerate" if noun.endswith("s") else _VERBS.get(method, "Get")
        place = f"sb://{host}/{address.path}"
        return (
            f"401 SubCode=40100: Unauthorized : Unauthorized access for '{verb}{noun}' operation on endpoint "
            f"'{place}'. Use a policy with the Manage claim."
        )
    right = _RIGHTS.get(method)
    if right is None:
        return "Manage,EntityRead claims required for this operation. Use a policy with the Manage claim."
    failed = f"Authorization failed for specified action: Manage,{right}."
    return f"SubCode=40100. Unauthorized : {failed} Use a policy with the Manage claim."


def refusal(status: int, detail: str) -> Response:
    """The answer that says no."""
    return error_response(status, f"SubCode={status}00. {detail}")
