"""A certificate for a server of a test, and a token as Microsoft Entra ID gives it."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def certificate_of_loopback(folder: Path) -> tuple[Path, Path]:
    """Write a certificate of 127.0.0.1, which signs itself, and its key; return their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback of a test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    return paths


def token(*, expires_in: timedelta = timedelta(hours=1), audience: str = "https://storage.azure.com") -> str:
    """Return a token without a valid signature."""
    now = datetime.now(UTC)
    claims = {
        "aud": audience,
        "iss": "https://sts.windows.net/11111111-1111-1111-1111-111111111111/",
        "iat": int((now - timedelta(hours=2)).timestamp()),
        "nbf": int((now - timedelta(hours=2)).timestamp()),
        "exp": int((now + expires_in).timestamp()),
    }
    parts = ({"typ": "JWT", "alg": "RS256"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "c2lnbmF0dXJl"])
