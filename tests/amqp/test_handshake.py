import pytest

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import Closed, Opened, SaslInitReceived, SessionBegun
from pairbus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, encode_frame
from pairbus.amqp.performatives import Begin, Open, SaslInit, SaslOutcome, SaslResponse
from pairbus.amqp.sasl import SaslClient
from pairbus.conditions import ILLEGAL_STATE, NOT_ALLOWED, UNAUTHORIZED
from tests.amqp.wire import Wire


def _server(*, sasl: bool = True, sasl_optional: bool = False) -> Connection:
    return Connection(server=True, container_id="server", sasl=sasl, sasl_optional=sasl_optional)


def _init(mechanism: str = "ANONYMOUS", response: bytes | None = None) -> bytes:
    return encode_frame(0, SaslInit(mechanism, response), kind=SASL_FRAME)


@pytest.mark.parametrize(
    "client",
    [
        SaslClient.anonymous(),
        SaslClient("MSSBCBS"),
        SaslClient("EXTERNAL", b""),
        SaslClient.plain("me", "hunter2"),
    ],
    ids=lambda client: client.mechanism,
)
def test_every_mechanism_leads_to_an_open_connection(client: SaslClient) -> None:
    wire = Wire(
        client=Connection(server=False, container_id="client", hostname="host", sasl_client=client)
    ).open()
    init = wire.server_event(SaslInitReceived)
    assert (init.mechanism, init.hostname) == (client.mechanism, "host")
    assert init.initial_response == client.initial_response
    assert wire.client_event(Opened).open.container_id == "server"
    assert wire.server_event(Opened).open.hostname == "host"


def test_mechanisms_are_offered_as_an_array_of_symbols() -> None:
    server = _server()
    server.receive_data(SASL_HEADER, 0.0)
    offered = b"\xa3\x07MSSBCBS\x05PLAIN\x09ANONYMOUS\x08EXTERNAL"
    assert offered in server.data_to_send()


def test_plain_credentials_are_kept_secret() -> None:
    client = SaslClient.plain("me", "hunter2")
    event = SaslInitReceived("PLAIN", client.initial_response, None)
    assert "hunter2" not in repr(client) + repr(event)


def test_a_client_that_is_not_let_in_learns_why() -> None:
    wire = Wire()
    wire.accept_sasl = False
    wire.open()
    for closed in (wire.server_event(Closed), wire.client_event(Closed)):
        assert closed.error is not None
        assert closed.error.condition == UNAUTHORIZED
    assert wire.server.receive_data(AMQP_HEADER, 0.0) == []


def test_a_mechanism_that_was_not_offered_fails() -> None:
    server = _server()
    server.receive_data(SASL_HEADER, 0.0)
    server.data_to_send()
    (closed,) = server.receive_data(_init("GSSAPI"), 0.0)
    assert isinstance(closed, Closed)
    assert server.data_to_send() == encode_frame(0, SaslOutcome(1), kind=SASL_FRAME)


def test_a_client_refuses_a_server_without_its_mechanism() -> None:
    server = Connection(server=True, container_id="server", sasl_mechanisms=("EXTERNAL",))
    wire = Wire(server=server).open()
    error = wire.client_event(Closed).error
    assert error is not None
    assert "ANONYMOUS" in error.description


def test_a_client_may_send_everything_ahead() -> None:
    server = _server()
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    ahead = SASL_HEADER + _init() + AMQP_HEADER + encode_frame(0, Open("peer")) + encode_frame(0, begin)
    (init,) = server.receive_data(ahead, 0.0)
    assert isinstance(init, SaslInitReceived)
    assert [type(event) for event in server.sasl_outcome(True)] == [Opened, SessionBegun]


def test_bytes_sent_ahead_of_the_decision_are_bounded() -> None:
    server = _server()
    server.receive_data(SASL_HEADER + _init(), 0.0)
    events = []
    for _ in range(20):
        events += server.receive_data(b"x" * 32768, 0.0)
    assert [type(event) for event in events] == [Closed]


def test_the_outcome_is_given_once() -> None:
    server = _server()
    assert server.sasl_outcome(True) == []
    server.receive_data(SASL_HEADER + _init(), 0.0)
    server.data_to_send()
    server.sasl_outcome(True)
    assert server.data_to_send() == encode_frame(0, SaslOutcome(0), kind=SASL_FRAME)
    server.sasl_outcome(False)
    assert server.data_to_send() == b""


@pytest.mark.parametrize(
    "header", [b"HTTP/1.1", b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01", b"GET / HTTP/1.0\r\n", b"G"]
)
@pytest.mark.parametrize("sasl", [True, False])
def test_a_wrong_header_is_answered_with_ours_and_the_end(header: bytes, sasl: bool) -> None:
    server = _server(sasl=sasl)
    (closed,) = server.receive_data(header, 0.0)
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == NOT_ALLOWED
    assert server.data_to_send() == (SASL_HEADER if sasl else AMQP_HEADER)
    assert server.receive_data(AMQP_HEADER, 0.0) == []


def test_sasl_is_required_unless_it_is_optional() -> None:
    strict = _server()
    assert isinstance(strict.receive_data(AMQP_HEADER, 0.0)[0], Closed)
    assert strict.data_to_send() == SASL_HEADER
    for server in (_server(sasl=False), _server(sasl_optional=True)):
        (opened,) = server.receive_data(AMQP_HEADER + encode_frame(0, Open("peer")), 0.0)
        assert isinstance(opened, Opened)
        assert server.data_to_send().startswith(AMQP_HEADER)


def test_an_optional_sasl_is_still_offered() -> None:
    server = Connection(server=True, container_id="server", sasl_optional=True)
    assert Wire(server=server).open().client_event(Opened)


def test_a_client_without_sasl() -> None:
    client = Connection(server=False, container_id="client", sasl=False)
    wire = Wire(client=client, server=_server(sasl=False)).open()
    assert wire.client_event(Opened)
    assert wire.server_event(Opened)


def test_errant_sasl_frames_end_the_handshake() -> None:
    for frame in (
        encode_frame(0, SaslResponse(b"x"), kind=SASL_FRAME),
        encode_frame(0, Open("peer"), kind=SASL_FRAME),
    ):
        server = _server()
        server.receive_data(SASL_HEADER, 0.0)
        server.data_to_send()
        (closed,) = server.receive_data(frame, 0.0)
        assert isinstance(closed, Closed)
        assert closed.error is not None
        assert closed.error.condition == ILLEGAL_STATE
        assert server.data_to_send() == b""


def test_sasl_frames_are_bounded_and_not_empty() -> None:
    for frame in (b"\x00\x00\x00\x08\x02\x01\x00\x00", b"\x7f\x00\x00\x00\x02\x01\x00\x00"):
        server = _server()
        events = server.receive_data(SASL_HEADER + frame, 0.0)
        assert isinstance(events[-1], Closed)


def test_closing_in_the_handshake_says_nothing_and_is_told() -> None:
    server = _server()
    server.close()
    assert server.data_to_send() == b""
    assert server.receive_data(SASL_HEADER, 0.0) == [Closed(None, True)]
