"""The certificate of the TLS side of a namespace's port.

Administration clients speak HTTPS whatever the connection string says, so every namespace answers TLS. Its
certificate is made at the first start, for 127.0.0.1, ::1 and localhost, and clients are told to trust that
very file. It is therefore its own authority (CA:TRUE): OpenSSL, and with it Python and Node, takes a
self-signed certificate as an anchor of trust only so. Its key signs nothing else and stays in the directory,
mode 0600.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pairbus.errors import ConfigurationError
from pairbus.plumbing.files import SECRET, make_directory, publish, read_given, tighten

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CERTIFICATE_FILE: Final = "cert.pem"
KEY_FILE: Final = "key.pem"
LIFETIME: Final = datetime.timedelta(days=3650)
# Clocks of clients may be behind ours.
BACKDATED: Final = datetime.timedelta(days=1)
# A certificate is renewed at a start, and a broker may then run for long.
RENEWED_BEFORE_END: Final = datetime.timedelta(days=30)
ADDRESSES: Final = ("127.0.0.1", "::1")
HOST: Final = "localhost"


@dataclass(frozen=True)
class Certificate:
    """Where a certificate and its key stand, both PEM."""

    cert_path: Path
    key_path: Path


def ensure_certificate(directory: Path, *, now: float) -> Certificate:
    """Give the certificate of a directory; it is made when there is none or when it no longer serves."""
    make_directory(directory)
    certificate = Certificate((directory / CERTIFICATE_FILE).absolute(), (directory / KEY_FILE).absolute())
    if _serves(certificate, now):
        tighten(certificate.key_path)
    else:
        _make(certificate, now)
    return certificate


def load_given(cert_path: Path, key_path: Path, *, now: float) -> Certificate:
    """Check a certificate that the owner gives: readable, a pair, and valid now."""
    for path in (cert_path, key_path):
        try:
            read_given(path)
        except OSError as error:
            raise ConfigurationError(
                f"{path} cannot be read: {error.strerror}. Give the path of a PEM file."
            ) from None
    certificate = Certificate(cert_path.absolute(), key_path.absolute())
    server_context(certificate)
    _check_validity(certificate.cert_path, now)
    return certificate


def server_context(certificate: Certificate) -> ssl.SSLContext:
    """Make the TLS context with which a namespace answers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password callback OpenSSL would ask on the terminal for that of an encrypted key.
        context.load_cert_chain(certificate.cert_path, certificate.key_path, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise ConfigurationError(
            f"{certificate.cert_path} and {certificate.key_path} are no usable pair "
            f"({reason}). Give a PEM certificate and its own private key, not encrypted."
        ) from None
    return context


def _serves(certificate: Certificate, now: float) -> bool:
    """Whether it is a pair, for us, valid for a while; by `ssl` alone: `cryptography` is slow to import."""
    try:
        server_context(certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(certificate.cert_path)
    except (ConfigurationError, ssl.SSLError, OSError):
        return False
    found = context.get_ca_certs()
    if len(found) != 1:
        return False
    begins = ssl.cert_time_to_seconds(str(found[0]["notBefore"]))
    ends = ssl.cert_time_to_seconds(str(found[0]["notAfter"]))
    return (
        _names(found[0]) >= {HOST, *ADDRESSES} and begins <= now < ends - RENEWED_BEFORE_END.total_seconds()
    )


def _names(found: Mapping[str, Any]) -> set[str]:
    """The subject's alternative names; addresses in their short form, which OpenSSL does not use."""
    names: set[str] = set()
    for kind, value in found.get("subjectAltName", ()):
        names.add(str(ipaddress.ip_address(value)) if kind == "IP Address" else value)
    return names


def _check_validity(path: Path, now: float) -> None:
    from cryptography import x509  # late: see _serves

    found = x509.load_pem_x509_certificate(path.read_bytes())
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    if not found.not_valid_before_utc <= moment <= found.not_valid_after_utc:
        raise ConfigurationError(
            f"The certificate in {path} is not valid now, but from {found.not_valid_before_utc} "
            f"to {found.not_valid_after_utc}. Give one that is valid."
        )


def _make(certificate: Certificate, now: float) -> None:
    from cryptography.hazmat.primitives import serialization  # late: see _serves
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    signed = _sign(key, datetime.datetime.fromtimestamp(now, datetime.UTC))
    # The key first: a crash in between leaves a pair that does not match, which the next start replaces.
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    publish(certificate.key_path, secret, mode=SECRET)
    # The certificate is no secret: other users' clients may trust it too.
    publish(certificate.cert_path, signed.public_bytes(serialization.Encoding.PEM), mode=0o644)


def _sign(key: ec.EllipticCurvePrivateKey, moment: datetime.datetime) -> x509.Certificate:
    from cryptography import x509  # late: see _serves
    from cryptography.hazmat.primitives import hashes

    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Pairbus embedded namespace")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - BACKDATED)
        .not_valid_after(moment + LIFETIME)
    )
    for extension, critical in _extensions(key.public_key()):
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(key, hashes.SHA256())


def _extensions(key: ec.EllipticCurvePublicKey) -> list[tuple[x509.ExtensionType, bool]]:
    """What OpenSSL demands of an authority in its strict mode, and of a server."""
    from cryptography import x509  # late: see _serves
    from cryptography.x509.oid import ExtendedKeyUsageOID

    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in ADDRESSES]
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    return [
        (x509.SubjectAlternativeName([*addresses, x509.DNSName(HOST)]), False),
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (usage, True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectKeyIdentifier.from_public_key(key), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(key), False),
    ]
