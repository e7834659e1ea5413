"""What qpid-proton does with an embedded namespace; run by the interpreter that has it, which is not ours.

Each check prints a line of JSON with what it has seen; the test beside this file judges.
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
import traceback
from typing import Any
from urllib.parse import quote, quote_plus

from proton import ConnectionException, Message, SSLDomain, symbol
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, LinkOption
from proton.utils import BlockingConnection, LinkDetached, SendException

HOST, PORT = "127.0.0.1", int(os.environ["PAIRBUS_PORT"])
KEY_NAME, KEY, CERT = os.environ["PAIRBUS_KEY_NAME"], os.environ["PAIRBUS_KEY"], os.environ["PAIRBUS_CERT"]
DEADLINE = 30


def connect(scheme: str = "amqp", user: "str | None" = KEY_NAME, key: str = KEY) -> Any:
    domain = None
    if scheme == "amqps":
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(CERT)
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
    credentials = "" if user is None else f"{quote(user, safe='')}:{quote(key, safe='')}@"
    return BlockingConnection(
        f"{scheme}://{credentials}{HOST}:{PORT}",
        timeout=DEADLINE,
        ssl_domain=domain,
        sasl_enabled=True,
        allowed_mechs="ANONYMOUS" if user is None else "PLAIN",
    )


def sas_token(path: str) -> str:
    uri, expiry = quote_plus(f"sb://{HOST}/{path}"), int(time.time()) + 600
    digest = hmac.new(KEY.encode(), f"{uri}\n{expiry}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(digest))
    return f"SharedAccessSignature sr={uri}&sig={signature}&se={expiry}&skn={KEY_NAME}"


def send_and_receive(scheme: str) -> Any:
    connection = connect(scheme)
    sent = Message(
        id="m-1",
        subject="hi",
        body={"a": [1, "two"]},
        properties={"n": 3, "t": "x", "b": True},
        group_id=None,
        durable=True,
    )
    connection.create_sender("orders").send(sent)
    receiver = connection.create_receiver("orders", credit=1)
    message = receiver.receive(timeout=DEADLINE)
    receiver.accept()
    seen = [message.id, message.subject, message.body, message.properties, sorted(message.annotations or {})]
    connection.close()
    return seen


def settlements() -> Any:
    connection = connect()
    sender, receiver = connection.create_sender("settled"), connection.create_receiver("settled", credit=1)
    for text in ("released", "rejected"):
        sender.send(Message(body=text))
    seen = []
    message = receiver.receive(timeout=DEADLINE)
    seen.append([message.body, message.delivery_count])
    receiver.release(delivered=True)  # modified, with the delivery counted: an abandon
    message = receiver.receive(timeout=DEADLINE)
    seen.append([message.body, message.delivery_count])
    receiver.accept()
    message = receiver.receive(timeout=DEADLINE)
    receiver.reject()
    seen.append([message.body])
    dead = connection.create_receiver("settled/$DeadLetterQueue", credit=1)
    seen.append([dead.receive(timeout=DEADLINE).body])
    dead.accept()
    connection.close()
    return seen


class SessionFilter(LinkOption):  # type: ignore[misc]
    def __init__(self, session: str) -> None:
        self._session = session

    def apply(self, link: Any) -> None:
        link.source.filter.put_dict({symbol("com.microsoft:session-filter"): self._session})

    def test(self, link: Any) -> bool:
        return bool(link.is_receiver)


def sessions() -> Any:
    connection = connect()
    sender = connection.create_sender("sessions")
    for session in ("one", "two", "one"):
        sender.send(Message(body=session, group_id=session))
    receiver = connection.create_receiver("sessions", credit=5, options=SessionFilter("one"))
    seen = []
    for _ in range(2):
        seen.append(receiver.receive(timeout=DEADLINE).body)
        receiver.accept()
    connection.close()
    return seen


def claims_based_security() -> Any:
    connection = connect(user=None)
    answers = connection.create_receiver("$cbs", name="answers", credit=5)
    asking = connection.create_sender("$cbs")
    asking.send(
        Message(
            id="1",
            reply_to="answers",
            properties={
                "operation": "put-token",
                "type": "servicebus.windows.net:sastoken",
                "name": f"sb://{HOST}/orders",
            },
            body=sas_token("orders"),
        )
    )
    status = answers.receive(timeout=DEADLINE).properties["status-code"]  # settled by its sender
    connection.create_sender("orders").send(Message(body="by token"))
    receiver = connection.create_receiver("orders", credit=1)
    body = receiver.receive(timeout=DEADLINE).body
    receiver.accept()
    connection.close()
    return [status, body]


def refusals() -> Any:
    seen = []
    connection = connect()
    try:
        connection.create_sender("missing")
    except LinkDetached as error:
        seen.append(error.condition)
    try:
        connection.create_sender("orders").send(Message(body=b"x" * 300_000))
    except (SendException, LinkDetached) as error:
        seen.append(type(error).__name__)
    connection.close()
    try:
        connect(key="wrong")
    except ConnectionException as error:
        seen.append("amqp:unauthorized-access" in str(error))
    return seen


def many() -> Any:
    connection = connect()
    sender, receiver = connection.create_sender("many"), connection.create_receiver("many", credit=100)
    for number in range(300):
        sender.send(Message(body=number))
    seen = []
    for _ in range(300):
        seen.append(receiver.receive(timeout=DEADLINE).body)
        receiver.accept()
    connection.close()
    return seen == list(range(300))


class Moving(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """Moves messages from one queue to another, each in a transaction; every second one is rolled back."""

    def __init__(self) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.seen: list[str] = []

    def on_start(self, event: Any) -> None:
        credentials = f"{quote(KEY_NAME, safe='')}:{quote(KEY, safe='')}@"
        self.container = event.container
        self.connection = event.container.connect(
            f"amqp://{credentials}{HOST}:{PORT}", reconnect=False, allowed_mechs="PLAIN"
        )
        self.receiver = event.container.create_receiver(self.connection, "from")
        self.sender = event.container.create_sender(self.connection, "to")
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.receiver.flow(1)

    def on_message(self, event: Any) -> None:
        self.transaction.send(self.sender, Message(body=f"moved {event.message.body}"))
        self.transaction.accept(event.delivery)
        if event.message.body % 2:
            self.transaction.abort()
        else:
            self.transaction.commit()

    def on_transaction_committed(self, event: Any) -> None:
        self._go_on("committed")

    def on_transaction_aborted(self, event: Any) -> None:
        self._go_on("aborted")

    def on_transaction_commit_failed(self, event: Any) -> None:
        self._go_on("failed")

    def _go_on(self, what: str) -> None:
        self.seen.append(what)
        if len(self.seen) == 4:
            self.connection.close()
        else:
            self.container.declare_transaction(self.connection, handler=self)


def transactions() -> Any:
    connection = connect()
    sender = connection.create_sender("from")
    for number in range(4):
        sender.send(Message(body=number))
    moving = Moving()
    Container(moving).run()
    receiver = connection.create_receiver("to", credit=4)
    moved = []
    for _ in range(2):
        moved.append(receiver.receive(timeout=DEADLINE).body)
        receiver.accept()
    connection.close()
    return [moving.seen, moved]


CHECKS = {
    "transactions": transactions,
    "plain": lambda: send_and_receive("amqp"),
    "tls": lambda: send_and_receive("amqps"),
    "settlements": settlements,
    "sessions": sessions,
    "claims based security": claims_based_security,
    "refusals": refusals,
    "many": many,
}

for name, check in CHECKS.items():
    try:
        outcome = {"seen": check()}
    except Exception:  # noqa: BLE001 - told to the test
        outcome = {"failure": traceback.format_exc()}
    sys.stdout.write(json.dumps({"check": name, **outcome}) + "\n")
    sys.stdout.flush()
