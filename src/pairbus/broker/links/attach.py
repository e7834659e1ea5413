"""What happens when a client attaches a link: node, claim, an endpoint behind the link; or a refusal."""

import itertools
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from pairbus import conditions, words
from pairbus.amqp.events import LinkAttached, LinkFlowed
from pairbus.amqp.link import Link
from pairbus.amqp.performatives import AmqpError, Coordinator, Source, Target
from pairbus.amqp.types import Described, Symbol, ULong
from pairbus.broker.access.policies import Claim
from pairbus.broker.bounded_log import BoundedLog
from pairbus.broker.contents import NotAtHand, check_at_hand
from pairbus.broker.engine.errors import Refused, bad_argument, not_allowed
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.sessions import SessionLock
from pairbus.broker.engine.transaction import NotedSend, NotedSettlement, discharge
from pairbus.fault_kinds import ClientAction

from .address import MOST_ADDRESS, LinkAddress, NodeKind, parse_address
from .cbs import TokenNode
from .coordinator import CoordinatorEndpoint
from .endpoint import LinkEndpoint, Unanswered
from .management import ManagementNode
from .receiving_endpoint import SEND_CREDIT, ReceivingEndpoint, count_sent
from .requests import REQUEST_CREDIT, Answer, AnswerEndpoint, Node, NodeRequest, RequestEndpoint, Service
from .sending_endpoint import SendingEndpoint
from .transactions import Transaction
from .wire import dotnet_ticks

if TYPE_CHECKING:
    from .peer import Peer

log = logging.getLogger(__name__)
refusals = BoundedLog(log)
SESSION_FILTER = Symbol(words.SESSION_FILTER)
_TIMEOUT = Symbol(words.LINK_TIMEOUT)
_LOCKED_UNTIL = Symbol(words.LOCKED_UNTIL_TICKS)
_BATCH_SIZE = Symbol(words.BATCH_SIZE)
_DESTINATION = Symbol(words.TRANSFER_DESTINATION)
_TRANSACTIONS = ("amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn")
_LIFETIME = Symbol("lifetime-policy")
# How long "the next free session" is waited for if the client does not say, as by the SDKs.
SESSION_WAIT = 60.0
LONGEST_SESSION_WAIT = 3600.0
_wait_numbers = itertools.count()


def attach_link(peer: "Peer", event: LinkAttached) -> None:
    """Answer an attach: accept it, keep it waiting for a session, leave it unanswered, or refuse it."""
    try:
        if isinstance(event.attach.target, Coordinator):
            _attach_coordinator(peer, event)
            return
        address = _address(peer, event)
        if address.kind is NodeKind.ENTITY:
            _attach_entity(peer, event, address.path)
        else:
            _attach_node(peer, event.link, address)
    except Refused as refused:
        fields = {"namespace": peer.host.name, "connection": peer.name, "condition": refused.condition}
        refusals.tell(logging.INFO, "link refused", {**fields, "reason": refused.description})
        event.link.refuse(AmqpError(refused.condition, refused.told_to(peer.access.known_as), {}))


def _address(peer: "Peer", event: LinkAttached) -> LinkAddress:
    for end in (event.attach.source, event.attach.target):
        _check_dynamic(end)
    terminus = event.attach.source if event.link.is_sender else event.attach.target
    raw = terminus.address if isinstance(terminus, Source | Target) else None
    if not isinstance(raw, str):
        raise Refused(
            conditions.INVALID_FIELD, "A link needs an address: the path of a queue, topic or subscription."
        )
    if len(raw) > MOST_ADDRESS:
        raise Refused(conditions.INVALID_FIELD, f"An address has at most {MOST_ADDRESS} characters.")
    peer.access.meet(raw)
    return parse_address(raw)


def _check_dynamic(terminus: object) -> None:
    """No node is made on demand here; but what asks for one must be well-formed (part 3.5.3)."""
    if not isinstance(terminus, Source | Target):
        return
    wanted = terminus.dynamic_node_properties
    if wanted is not None and not (terminus.dynamic and all(isinstance(key, Symbol) for key in wanted)):
        raise Refused(
            conditions.INVALID_FIELD, "dynamic-node-properties are for dynamic nodes, and their keys symbols."
        )
    if not isinstance((wanted or {}).get(_LIFETIME), Described | None):
        raise Refused(conditions.INVALID_FIELD, "A lifetime-policy is a described value (part 3.5.9).")
    if terminus.dynamic and terminus.address is not None:
        raise Refused(conditions.INVALID_FIELD, "A dynamic node has no address of the client's choice.")
    if terminus.dynamic:
        raise Refused(conditions.NOT_IMPLEMENTED, "Nodes are made by administration, not by attaching.")


# -- $cbs and $management


def _attach_node(peer: "Peer", link: Link, address: LinkAddress) -> None:
    name = f"{address.kind.value}:{address.path.lower()}"
    if address.kind is NodeKind.MANAGEMENT:
        peer.access.require(address.resource, ("Send", "Listen", "Manage"), now=peer.host.now())
        path = peer.host.engine.node(address.path).path
        if _leave_unanswered(peer, link, path):
            return
        _check_faults(peer, ClientAction.ATTACH_MANAGEMENT, path)
    else:
        path = ""
    if link.is_sender:
        peer.add(AnswerEndpoint(link, name, path=path, spend=peer.spend, siblings=peer.answers))
        link.accept()
        return
    if not path and any(
        isinstance(each, RequestEndpoint) and not each.path for each in peer.endpoints.values()
    ):
        raise not_allowed("The connection has a sender to $cbs already. Use that one.")
    node = _management_node(peer, address, path) if path else _token_node(peer)
    service = _watched(peer, node) if path else _told(peer, _watched(peer, node))
    at_length = peer.at_length if path else None
    find = peer.answers.finder(name)
    peer.add(RequestEndpoint(link, service, find, later=peer.later, at_length=at_length, path=path))
    link.accept(max_message_size=peer.host.limits.max_message_size, initial_credit=REQUEST_CREDIT)


def _watched(peer: "Peer", node: Node) -> Service:
    """A node whose unforeseen errors are answered as well, unless they have to undo the turn."""
    host = peer.host

    def answer(request: NodeRequest) -> Answer:
        noted = host.engine.noted
        try:
            return node(request)
        except NotAtHand:
            raise
        except Exception as error:
            if host.is_half_done(error, noted):
                raise
            fields = {"namespace": host.name, "connection": peer.name}
            log.error("request failed", extra={"fields": fields}, exc_info=error)
            return node.failure()

    return answer


def _token_node(peer: "Peer") -> Node:
    host = peer.host

    def exists(path: str) -> None:
        host.engine.node(path)

    return TokenNode(
        check=host.check_token,
        exists=exists,
        is_down=lambda path: host.faults.refuses_tokens(path, host.now()),
        accept=peer.take_grant,
        meet=peer.access.meet,
    )


def _told(peer: "Peer", service: Service) -> Service:
    """Answers of `$cbs` that refuse are told to the log."""
    host = peer.host

    def answer(request: NodeRequest) -> Answer:
        given = service(request)
        status, reason = int(given.properties[words.CBS_STATUS]), given.properties[words.CBS_STATUS_TEXT]
        if status >= 400:
            fields = {"namespace": host.name, "connection": peer.name, "status": status, "reason": reason}
            refusals.tell(logging.INFO, "token refused", fields)
        return given

    return answer


def _management_node(peer: "Peer", address: LinkAddress, path: str) -> Node:
    host = peer.host
    return ManagementNode(
        path=path,
        engine=host.engine,
        now=host.now,
        require=lambda claim: peer.access.require(address.resource, (claim,), now=host.now()),
        check_faults=lambda operation: _check_faults(peer, operation, path),
        delay=lambda: peer.delay_of_answer(path),
        session_lock=lambda queue, session_id: _held_session(peer, queue, session_id),
        count=lambda kind, size: host.counters.count(path, peer.name, kind=kind, size=size),
        host=lambda: peer.access.known_as,
    )


def _held_session(peer: "Peer", queue: MessageQueue, session_id: str) -> SessionLock:
    lock = queue.session_lock(session_id)
    reader = peer.host.consumers.reader_of(lock)
    if lock is not None and reader is not None and reader.peer is peer:
        return lock
    raise Refused(
        conditions.SESSION_LOCK_LOST,
        f"The session lock on '{session_id}' is not held by this connection. Accept the session again.",
    )


# -- the coordinator


def _attach_coordinator(peer: "Peer", event: LinkAttached) -> None:
    """It needs no claim: what is done in a transaction does."""
    host = peer.host
    if event.link.is_sender:
        raise Refused(conditions.INVALID_FIELD, "A coordinator is what a client sends to.")
    if not host.limits.has_transactions:
        text = f"The {host.limits.sku} tier has no transactions. Use the Standard or the Premium tier."
        raise Refused(conditions.NOT_IMPLEMENTED, text)

    def perform(transaction: Transaction, held: int) -> None:
        for step in transaction.steps:
            # The link that it came by may have lost its right since.
            claim = Claim.SEND if isinstance(step, NotedSend) else Claim.LISTEN
            peer.access.require(step.path, (claim,), now=host.now())
        check_at_hand(
            (step.queue, message)
            for step in transaction.steps
            if isinstance(step, NotedSettlement) and step.needs_content
            for message in step.queue.locked([step.token])
        )
        discharge(host.engine, transaction.steps, host.now())
        for step in transaction.steps:
            if isinstance(step, NotedSend):
                count_sent(host.counters, peer.name, step.path, step.messages)
        host.uncommitted += held

    peer.add(
        CoordinatorEndpoint(
            peer,
            event,
            host.transactions,
            discharge=perform,
            account=host.burdens.unfinished,
            most=host.amqp_limits.max_partial_bytes,
            is_stranger=lambda: not peer.machine.trusted,
        )
    )
    event.link.accept(target=Coordinator(_TRANSACTIONS), initial_credit=REQUEST_CREDIT)


# -- entities


def _attach_entity(peer: "Peer", event: LinkAttached, path: str) -> None:
    link = event.link
    claim, operation = (
        ("Listen", ClientAction.ATTACH_RECEIVER) if link.is_sender else ("Send", ClientAction.ATTACH_SENDER)
    )
    peer.access.require(path, (claim,), now=peer.host.now())
    if not link.is_sender and (destination := (event.attach.properties or {}).get(_DESTINATION)) is not None:
        path = _destination(peer, destination)
    if _leave_unanswered(peer, link, path):
        return
    _check_faults(peer, operation, path)
    if link.is_sender:
        _attach_receiver(peer, event, path)
    else:
        _attach_sender(peer, link, path)


def _destination(peer: "Peer", address: object) -> str:
    """The entity that a link sends to though it is attached to another: here all is in one place."""
    if not isinstance(address, str) or len(address) > MOST_ADDRESS:
        raise Refused(conditions.INVALID_FIELD, f"{words.TRANSFER_DESTINATION} is the path of an entity.")
    path = parse_address(address).path
    peer.access.require(path, (Claim.SEND,), now=peer.host.now())
    return path


def _attach_sender(peer: "Peer", link: Link, path: str) -> None:
    node = peer.host.engine.node(path)
    node.check_send()
    peer.add(ReceivingEndpoint(peer, link, node.path))
    most = node.largest_message
    # A batch has a limit of its own, which large messages do not lift.
    batch = ULong(min(most, peer.host.limits.max_batch_size))
    link.accept(max_message_size=most, initial_credit=SEND_CREDIT, properties={_BATCH_SIZE: batch})


def _attach_receiver(peer: "Peer", event: LinkAttached, path: str) -> None:
    queue = peer.host.engine.node(path)
    if not isinstance(queue, MessageQueue):
        text = f"'{path}' is a topic. Receive from one of its subscriptions, '{path}/Subscriptions/<name>'."
        raise not_allowed(text)
    queue.check_receive()
    has_filter, session_id = _session_filter(event, most=peer.host.limits.max_identifier)
    queue.check_receiver(with_session=has_filter)
    if not has_filter:
        _begin(peer, event, queue=queue, session=None)
        return
    lock = queue.accept_session(session_id, peer.host.now())
    if lock is not None:
        _begin(peer, event, queue=queue, session=lock)
    else:
        _wait_for_session(peer, event, queue)


def _session_filter(event: LinkAttached, *, most: int) -> tuple[bool, str | None]:
    """Whether the attach asks for a session, and for which; None is the next free one."""
    source = event.attach.source
    filters = (source.filter if isinstance(source, Source) else None) or {}
    if SESSION_FILTER not in filters:
        return False, None
    value = filters[SESSION_FILTER]
    if isinstance(value, Described):
        value = value.value
    if value is not None and not isinstance(value, str):
        raise bad_argument("A session filter is the session's id, a string, or null for any.")
    if value is not None and len(value) > most:
        text = f"The session id has {len(value)} characters; it may have {most} at most."
        raise bad_argument(text)
    return True, value


def _begin(
    peer: "Peer",
    event: LinkAttached,
    *,
    queue: MessageQueue,
    session: SessionLock | None,
    drains: bool = False,
) -> None:
    link, source = event.link, event.attach.source
    deletes = event.attach.snd_settle_mode == 1
    outbox = SendingEndpoint(peer, link, queue=queue, deletes=deletes, session=session)
    peer.add(outbox)
    peer.host.consumers.enlist(outbox)
    if link.credit:  # given before the attach was answered, as it may be while that waits for a session
        outbox.on_flow(LinkFlowed(link, link.credit, drains, False))
    if session is None:
        # Filters that are not applied are not confirmed.
        plain = replace(source, filter=None) if isinstance(source, Source) and source.filter else None
        link.accept(source=plain, max_message_size=peer.host.limits.max_message_size)
        return
    assert isinstance(source, Source), "only a source has the filter that asks for a session"
    # Address as it came, byte for byte. The filter in the form that was asked in: the client of JavaScript
    # takes the id as a bare string only, that of Go as a described one only.
    asked = (source.filter or {})[SESSION_FILTER]
    held: object = session.session_id
    if isinstance(asked, Described):
        held = Described(asked.descriptor, held)
    link.accept(
        source=Source(address=source.address, filter={SESSION_FILTER: held}),
        properties={_LOCKED_UNTIL: dotnet_ticks(session.locked_until)},
        max_message_size=peer.host.limits.max_message_size,
    )


class SessionWait(LinkEndpoint):
    """Behind the link of an attach that waits for the next free session, until a monotonic time."""

    __slots__ = ("_drains", "event", "number", "peer", "queue", "until")

    def __init__(self, peer: "Peer", event: LinkAttached, *, queue: MessageQueue, until: float) -> None:
        super().__init__(event.link, needs=(queue.path, (Claim.LISTEN,)))
        self.peer = peer
        self.event = event
        self.queue = queue
        self.until = until
        self.number = next(_wait_numbers)
        self._drains = False
        queue.attend()

    def on_flow(self, event: LinkFlowed) -> None:
        if event.is_grant:
            self._drains = event.drain

    def on_detached(self) -> None:
        self.queue.leave(self.peer.host.now())
        self.peer.host.consumers.stop_waiting(self)

    def try_again(self, now: float) -> bool:
        """Whether it need not wait any longer: a session was free, or there will be none."""
        if self.peer.host.fault_desk.withholds(self.queue.path):
            return False
        try:
            lock = self.queue.accept_session(None, now)
        except Refused as refused:
            self.refuse(AmqpError(refused.condition, refused.description, {}))
            return True
        if lock is None:
            return False
        _begin(self.peer, self.event, queue=self.queue, session=lock, drains=self._drains)
        self.queue.leave(now)  # which the receiver attends now
        self.peer.host.touch(self.peer)
        return True

    def give_up(self) -> None:
        """Tell the client that its time is over."""
        if _leave_unanswered(self.peer, self.link, self.queue.path):
            self.on_detached()
            return
        text = "No session became free in the time that was given to wait."
        self.refuse(AmqpError(conditions.TIMEOUT, text, {}))

    def refuse(self, error: AmqpError) -> None:
        """Answer the attach with a refusal."""
        self.link.refuse(error)
        self.peer.forget(self.link)
        self.peer.host.touch(self.peer)


def _wait_for_session(peer: "Peer", event: LinkAttached, queue: MessageQueue) -> None:
    asked = (event.attach.properties or {}).get(_TIMEOUT)
    seconds = min(asked / 1000, LONGEST_SESSION_WAIT) if isinstance(asked, int) else SESSION_WAIT
    wait = SessionWait(peer, event, queue=queue, until=peer.host.monotonic() + seconds)
    peer.add(wait)
    peer.host.consumers.await_session(wait)


def _check_faults(peer: "Peer", operation: ClientAction, path: str) -> None:
    faults = peer.host.faults
    error = faults.refusal(operation, path, now=peer.host.now()) if faults.any else None
    if error is not None:
        raise Refused(error.condition, error.description or "")


def _leave_unanswered(peer: "Peer", link: Link, path: str) -> bool:
    """Whether the entity is mute; the link is then kept in mind, to be refused when it is so no longer."""
    is_mute = peer.host.fault_desk.is_mute(path)
    if is_mute:
        peer.add(Unanswered(link, path))
    return is_mute
