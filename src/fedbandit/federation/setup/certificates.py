"""Certificates as files: until when they hold, and what to trust who shows them."""

from __future__ import annotations

import ssl
from pathlib import Path

from cryptography import x509

__all__ = ["expires", "expires_shown", "trusting"]


def expires(pem: bytes) -> float:
    """The unix time until which the first certificate of a PEM file holds; ValueError if there is none in it."""
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()


def expires_shown(der: bytes) -> float:
    """The same for a certificate as somebody has shown it."""
    return x509.load_der_x509_certificate(der).not_valid_after_utc.timestamp()


def trusting(certificate: Path) -> ssl.SSLContext:
    """For a call to whoever serves with this very certificate, whatever it is called there."""
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
