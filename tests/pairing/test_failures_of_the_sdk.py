"""What the SDK really raises, from sockets that misbehave: the classes in the table are not of our making."""

import asyncio
import datetime
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pairbus.broker import Broker
from pairbus.pairing.failures import Failure, FailureKind, classify
from pairbus.sdk.failures import describe

KEY = "SharedAccessKeyName=root;SharedAccessKey=a2V5"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("azure")
    logger.disabled, before = True, logger.disabled
    yield
    logger.disabled = before


async def _fail(port: int, *, tls: bool = False, timeout: float = 5) -> Failure:
    if tls:
        text = f"Endpoint=sb://localhost:{port};{KEY}"
        client = ServiceBusClient.from_connection_string(
            text,
            retry_total=0,
            custom_endpoint_address=f"sb://127.0.0.1:{port}",
            transport_type=TransportType.Amqp,
        )
    else:
        text = f"Endpoint=sb://127.0.0.1:{port};{KEY};UseDevelopmentEmulator=true"
        client = ServiceBusClient.from_connection_string(text, retry_total=0, try_timeout=timeout)
    return await _fail_with(client)


async def _fail_at(connection_string: str) -> Failure:
    return await _fail_with(ServiceBusClient.from_connection_string(connection_string, retry_total=0))


async def _fail_with(client: ServiceBusClient) -> Failure:
    async with client:
        try:
            async with client.get_queue_sender("q") as sender:
                await sender.send_messages(ServiceBusMessage("x"))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is tested
            return describe(error)
    raise AssertionError("the send was expected to fail")


@asynccontextmanager
async def _serving(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """The port of a server whose connections end with it.

    The SDK leaves the connection to a silent peer open. Since Python 3.12.1 the end of a server waits for the
    end of its connections, so somebody has to end them.
    """
    open_now: set[asyncio.StreamWriter] = set()

    async def remember(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        await handle(reader, writer)

    async with await asyncio.start_server(remember, "127.0.0.1", 0, ssl=tls) as server:
        yield int(server.sockets[0].getsockname()[1])
        for writer in open_now:
            writer.transport.abort()


async def _reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


async def _stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def _talk_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
    await writer.drain()
    writer.close()


async def test_a_refused_port_is_a_connection_error_of_known_outcome() -> None:
    with socket.socket() as bound:  # bound and not listening: nobody else gets the port, and it refuses
        bound.bind(("127.0.0.1", 0))
        failure = await _fail(bound.getsockname()[1])
    assert classify(failure) is FailureKind.CONNECTION
    assert failure.is_outcome_known


async def test_a_reset_connection_is_a_connection_error() -> None:
    async with _serving(_reset) as port:
        failure = await _fail(port)
    assert classify(failure) is FailureKind.CONNECTION


async def test_a_silent_peer_times_out() -> None:
    async with _serving(_stay_silent) as port:
        failure = await _fail(port, timeout=0.3)
    assert classify(failure) is FailureKind.TIMEOUT


async def test_a_peer_that_is_no_service_bus_counts_as_an_outage() -> None:
    async with _serving(_talk_http) as port:
        failure = await _fail(port)
    assert classify(failure) in (FailureKind.UNRECOGNISED, FailureKind.CONNECTION)


async def test_a_certificate_that_cannot_be_verified_is_told_from_an_outage(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_write_certificate(tmp_path / "self-signed.pem"))
    async with _serving(_stay_silent, tls=context) as port:
        failure = await _fail(port, tls=True)
    assert classify(failure) is FailureKind.CERTIFICATE


async def test_a_handshake_that_is_cut_is_an_outage() -> None:
    async with _serving(_reset) as port:
        failure = await _fail(port, tls=True)
    assert classify(failure) is FailureKind.CONNECTION


def _write_certificate(path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2099, 1, 1, tzinfo=datetime.UTC))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(certificate.public_bytes(pem) + private)
    return path


async def test_an_entity_that_is_missing_is_named(pairbus_broker: Broker) -> None:
    """The SDK's own text has the condition of a refused token alone."""
    failure = await _fail_at(pairbus_broker["contoso"].connection_string)
    assert failure.text.startswith("The messaging entity 'sb://")
    assert "/q' could not be found" in failure.text
