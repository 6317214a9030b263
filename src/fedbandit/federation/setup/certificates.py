"""Certificate files: when they expire, whether they can be used, and TLS contexts that trust them."""

from __future__ import annotations

import ssl
from pathlib import Path

from cryptography import x509

from fedbandit._validate import ArgumentError

__all__ = ["authority", "check_pair", "expires", "expires_shown", "trusting"]


def expires(pem: bytes) -> float:
    """The unix time at which the first certificate of a PEM file expires; ValueError if it contains none."""
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()


def expires_shown(der: bytes) -> float:
    """The same for a certificate in DER form, as shown in a TLS handshake."""
    return x509.load_der_x509_certificate(der).not_valid_after_utc.timestamp()


def check_pair(certificate: str, key: str) -> None:
    """Refuse files that cannot be used to serve TLS."""
    for field, path in (("tls_certificate", certificate), ("tls_key", key)):
        _check_readable(field, path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise ArgumentError("tls_certificate", f"and tls_key must be PEM files that match ({error.reason})") from None


def authority(path: str) -> ssl.SSLContext:
    """A TLS context that trusts the authorities in a PEM file."""
    _check_readable("broker_ca", path)
    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        raise ArgumentError("broker_ca", f"must be a PEM file of certificates, got {path!r} ({error.reason})") from None


def _check_readable(field: str, path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ArgumentError(field, f"must be a file that can be read, got {path!r} ({error.strerror})") from None


def trusting(certificate: Path) -> ssl.SSLContext:
    """A TLS context that trusts exactly this certificate, whatever host name it has."""
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
