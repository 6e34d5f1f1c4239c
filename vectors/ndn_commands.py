"""Signed commands of the management protocol and the certificates of their keys, made with python-ndn.

A step is a command: its octets, the time at which it is signed, and the certificate or secret of the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from Cryptodome.Hash import SHA256
from Cryptodome.PublicKey import ECC, RSA
from Cryptodome.Signature import DSS
from Cryptodome.Util.number import isPrime
from ndn.app_support import security_v2
from ndn.app_support.nfd_mgmt import ControlParameters, ControlParametersValue
from ndn.encoding import (
    Component,
    InterestParam,
    Name,
    SignatureInfo,
    Signer,
    TypeNumber,
    get_tl_num_size,
    write_tl_num,
)
from ndn.encoding.ndn_format_0_3 import make_interest
from ndn.security import (
    DigestSha256Signer,
    Ed25519Signer,
    HmacSha256Signer,
    Sha256WithEcdsaSigner,
    Sha256WithRsaSigner,
)
from ndn_packets import File

KEY_NAME = "/operator/KEY/%01"
#: When the commands are signed, in milliseconds since 1970.
TIME = 1_700_000_000_000
PUBLIC_EXPONENT = 65537


class Timed(Signer):  # type: ignore[misc, unused-ignore]
    """Signs as another, at a time and with a nonce that are the same in every run."""

    def __init__(self, signer: Signer, time: int) -> None:
        """Signs as `signer`, at `time`."""
        self.signer, self.time = signer, time

    def write_signature_info(self, signature_info: Any) -> None:
        """What stands in SignatureInfo."""
        self.signer.write_signature_info(signature_info)
        signature_info.signature_time = self.time
        signature_info.signature_nonce = 7

    def get_signature_value_size(self) -> int:
        """Octets of the signature, at most."""
        return int(self.signer.get_signature_value_size())

    def write_signature_value(self, wire: Any, contents: list[Any]) -> int:
        """The signature over parts of the packet."""
        return int(self.signer.write_signature_value(wire, contents))


class Ecdsa(Sha256WithEcdsaSigner):  # type: ignore[misc, unused-ignore]
    """Signs the same the same way every time (RFC 6979)."""

    def write_signature_value(self, wire: Any, contents: list[Any]) -> int:
        """The signature over parts of the packet."""
        digest = SHA256.new(b"".join(bytes(part) for part in contents))
        signature = DSS.new(self.key, "deterministic-rfc6979", "der").sign(digest)
        wire[: len(signature)] = signature
        return len(signature)


def primes(bits: int) -> Iterator[int]:
    """Primes that no one drew."""
    number = 0
    while True:
        drawn = hashlib.shake_256(number.to_bytes(4, "big")).digest(bits // 8)
        candidate = int.from_bytes(drawn, "big") | 3 << (bits - 2) | 1
        number += 1
        if isPrime(candidate):
            yield candidate


def rsa() -> RSA.RsaKey:
    """An RSA key of 2048 bits."""
    drawn = primes(1024)
    p, q = next(drawn), next(drawn)
    d = pow(PUBLIC_EXPONENT, -1, (p - 1) * (q - 1))
    return RSA.construct((p * q, PUBLIC_EXPONENT, d, p, q))


def certificate(public_key: bytes, signer: Signer) -> bytes:
    """The certificate of a key, signed by itself. Its version is the time, the same in every run."""
    begin, end = datetime(2020, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
    now = security_v2.timestamp
    security_v2.timestamp = lambda: TIME
    try:
        _, octets = security_v2.new_cert(
            Name.from_str(KEY_NAME), Component.from_str("self"), public_key, signer, begin, end
        )
    finally:
        security_v2.timestamp = now
    return bytes(octets)


def parameters() -> bytes:
    """What the commands ask for."""
    value = ControlParametersValue()
    value.name = Name.from_str("/served")
    value.cost = 10
    wrapped = ControlParameters()
    wrapped.cp = value
    return bytes(wrapped.encode())


def command(module: str, verb: str) -> list[Any]:
    """The name of a command before it is signed."""
    return [*Name.from_str(f"/localhost/nfd/{module}/{verb}"), Component.from_bytes(parameters())]


def signed(signer: Signer, time: int = TIME) -> bytes:
    """A command as a signed Interest."""
    param = InterestParam(nonce=1, lifetime=1000)
    return bytes(make_interest(command("rib", "register"), param, b"", Timed(signer, time)))


def element(kind: int, value: bytes) -> bytes:
    """Type, length and value."""
    head = bytearray(get_tl_num_size(kind) + get_tl_num_size(len(value)))
    write_tl_num(len(value), head, write_tl_num(kind, head))
    return bytes(head) + value


def signed_in_name(signer: Signer) -> bytes:
    """A command of the older form: what signs it are components of its name."""
    name = command("rib", "register")
    name += [Component.from_bytes(TIME.to_bytes(8, "big")), Component.from_bytes(bytes(8))]
    info = SignatureInfo()
    signer.write_signature_info(info)
    encoded = bytes(info.encode())
    name.append(Component.from_bytes(element(TypeNumber.SIGNATURE_INFO, encoded)))
    value = bytearray(signer.get_signature_value_size())
    length = signer.write_signature_value(memoryview(value), name)
    name.append(Component.from_bytes(element(TypeNumber.SIGNATURE_VALUE, bytes(value[:length]))))
    return bytes(make_interest(name, InterestParam(nonce=1, lifetime=1000)))


def commands() -> File:
    """Commands signed by keys of every kind."""
    file = File("commands", "Commands that register a route, signed by keys of every kind.")
    ec256 = ECC.construct(curve="P-256", d=0x1234567890ABCDEF)
    ec384 = ECC.construct(curve="P-384", d=0x1234567890ABCDEF)
    edwards = ECC.construct(curve="Ed25519", seed=bytes(range(32)))
    rivest = rsa()
    secret = b"a secret that both ends know"

    def der(key: Any) -> bytes:
        return bytes(key.export_key(format="DER"))

    def public(key: Any) -> bytes:
        return bytes(key.public_key().export_key(format="DER"))

    keys: list[tuple[str, Signer, bytes | None]] = [
        ("RSA", Sha256WithRsaSigner(KEY_NAME, der(rivest)), public(rivest)),
        ("ECDSA on P-256", Ecdsa(KEY_NAME, der(ec256)), public(ec256)),
        ("ECDSA on P-384", Ecdsa(KEY_NAME, der(ec384)), public(ec384)),
        ("Ed25519", Ed25519Signer(KEY_NAME, der(edwards)), public(edwards)),
        ("HMAC", HmacSha256Signer(KEY_NAME, secret), None),
    ]
    for name, signer, key in keys:
        trusted: dict[str, Any] = {"certificate": certificate(key, signer)} if key else {"secret": secret}
        file.step(name, signed(signer), time=TIME, **trusted)
        file.step(f"{name}, in the name", signed_in_name(signer), time=TIME, **trusted)
        file.step(f"{name}, a second later", signed(signer, TIME + 1000), time=TIME + 1000, **trusted)
    file.step("digest", signed(DigestSha256Signer()), time=TIME)
    file.step("digest, in the name", signed_in_name(DigestSha256Signer()), time=TIME)
    return file


FILES: tuple[Callable[[], File], ...] = (commands,)
