"""The packet vectors of `vectors/ndn`, made with python-ndn; `make.py` writes and checks them.

A step is a packet: its octets and what stands in it, every member a string. What is not there has none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ndn.encoding import (
    ContentType,
    InterestParam,
    MetaInfo,
    Name,
    SignatureType,
    Signer,
    ndnlp_v2,
)
from ndn.encoding.name import Component
from ndn.encoding.ndn_format_0_3 import make_data, make_interest

Json = dict[str, Any]


@dataclass
class File:
    """One vector file: packets, and what is in them."""

    name: str
    about: str
    steps: list[Json] = field(default_factory=list)

    def step(self, name: str, octets: bytes, **said: Any) -> None:
        """Adds a packet."""
        self.steps.append({"name": name, "in": octets.hex(), **{key: text(said[key]) for key in said}})

    def render(self) -> str:
        """The file's text."""
        document = {"name": self.name, "about": self.about, "steps": self.steps}
        return json.dumps(document, indent=1) + "\n"


def text(value: Any) -> str:
    """A member's value."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return bytes(value).hex() if isinstance(value, bytes | bytearray | memoryview) else str(value)


@dataclass
class Digest(Signer):  # type: ignore[misc, unused-ignore]
    """Signs by SHA-256, with a nonce and a time that are the same in every run."""

    nonce: int | None = None
    time: int | None = None
    sequence: int | None = None

    def write_signature_info(self, signature_info: Any) -> None:
        """What stands in SignatureInfo."""
        signature_info.signature_type = SignatureType.DIGEST_SHA256
        signature_info.signature_nonce = self.nonce
        signature_info.signature_time = self.time
        signature_info.signature_seq_num = self.sequence

    def get_signature_value_size(self) -> int:
        """Octets of the signature."""
        return 32

    def write_signature_value(self, wire: Any, contents: list[Any]) -> int:
        """The signature over parts of the packet."""
        wire[:] = hashlib.sha256(b"".join(bytes(part) for part in contents)).digest()
        return 32


LONG = "/" + "/".join(f"component-{number}" for number in range(40))
NAMES = (
    "/a",
    "/ndn/kaido/%00%FF",
    "/32=meta/v=7/seg=0",
    "/off=65536/t=1700000000000000/seq=4294967296",
    "/a..b/-_~",
    "/sha256digest=" + "0f" * 32,
    "/300=x/65535=y",
    LONG,
)


def interests() -> File:
    """Interests of every form."""
    file = File("interests", "Interests, unsigned and signed by their SHA-256.")
    for uri in NAMES:
        octets = make_interest(uri, InterestParam(nonce=1, lifetime=None))
        file.step(uri, octets, uri=uri, nonce=1)
    forms: list[Json] = [
        {"can_be_prefix": True},
        {"must_be_fresh": True},
        {"nonce": 0xDEADBEEF},
        {"lifetime": 0},
        {"lifetime": 255},
        {"lifetime": 65536},
        {"lifetime": 2**40},
        {"hop_limit": 0},
        {"hop_limit": 255},
        {"forwarding_hint": ["/hint"]},
        {"forwarding_hint": ["/hint/one", "/hint/two"]},
        {"can_be_prefix": True, "must_be_fresh": True, "nonce": 2, "lifetime": 4000, "hop_limit": 64},
    ]
    for form in forms:
        octets = make_interest("/form", InterestParam(**{"lifetime": None, **form}))
        said = {**form, "forwarding_hint": " ".join(form.get("forwarding_hint", []))}
        file.step(" ".join(form), octets, uri="/form", **{key: said[key] for key in said if said[key] != ""})
    for name, parameters, signer in (
        ("parameters", b"abc", None),
        ("no octets of parameters", b"", None),
        ("many octets of parameters", b"p" * 300, None),
        ("signed", b"abc", Digest()),
        (
            "signed as a command",
            b"\x68\x00",
            Digest(0x0102030405060708, 1_700_000_000_000, 9),
        ),
    ):
        octets, final = make_interest(
            "/localhost/nfd/rib/register", InterestParam(nonce=3, lifetime=1000), parameters, signer, True
        )
        said = {"uri": Name.to_str(final), "nonce": 3, "lifetime": 1000, "parameters": parameters}
        if signer:
            said |= {"signed": True}
            if signer.nonce:
                said |= {
                    "signature_nonce": signer.nonce.to_bytes(8, "big"),
                    "time": signer.time,
                    "sequence": signer.sequence,
                }
        file.step(name, octets, **said)
    return file


def data() -> File:
    """Data of every form."""
    file = File("data", "Data signed by their SHA-256.")
    for uri in NAMES:
        octets = make_data(uri, MetaInfo(), b"content", Digest())
        file.step(uri, octets, uri=uri, content=b"content", digest=hashlib.sha256(octets).digest())
    forms: list[tuple[Json, bytes]] = [
        ({"freshness_period": 1000}, b"x"),
        ({"content_type": ContentType.NACK}, b""),
        ({"content_type": ContentType.KEY, "freshness_period": 3_600_000}, b"key"),
        ({"final_block_id": Component.from_segment(300)}, b"x" * 252),
        ({"final_block_id": Component.from_str("last")}, b"x" * 253),
        ({"freshness_period": 1, "final_block_id": Component.from_segment(0)}, b"x" * 8000),
    ]
    for form, content in forms:
        octets = make_data("/form", MetaInfo(**form), content, Digest())
        said = dict(form)
        if "final_block_id" in said:
            said["final_block_id"] = Component.to_str(said["final_block_id"])
        said |= {"content": content, "digest": hashlib.sha256(octets).digest()}
        file.step(f"{' '.join(form)}, {len(content)} octets", octets, uri="/form", **said)
    return file


def link() -> File:
    """Packets of NDNLPv2."""
    file = File("link", "Packets of the link: the header's fields and the fragment.")
    fragment = bytes(make_interest("/a", InterestParam(nonce=1, lifetime=None)))
    forms: list[Json] = [
        {},
        {"frag_index": 1, "frag_count": 3},
        {"pit_token": b"\x01"},
        {"pit_token": b"\x07" * 32},
        {"nack": 0},
        {"nack": 50},
        {"nack": 150},
        {"next_hop_face_id": 300},
        {"incoming_face_id": 256},
        {"cache_policy": 1},
        {"congestion_mark": 1},
        {"non_discovery": True},
        {"pit_token": b"abcdef", "nack": 100, "congestion_mark": 2},
    ]
    for form in forms:
        value = ndnlp_v2.LpPacketValue()
        for key, said in form.items():
            if key == "nack":
                value.nack = ndnlp_v2.NetworkNack()
                value.nack.nack_reason = said or None
            elif key == "cache_policy":
                value.cache_policy = ndnlp_v2.CachePolicy()
                value.cache_policy.cache_policy_type = said
            else:
                setattr(value, key, said)
        value.fragment = fragment
        packet = ndnlp_v2.LpPacket()
        packet.lp_packet = value
        file.step(" ".join(form) or "nothing", bytes(packet.encode()), **form, fragment=fragment)
    return file


FILES: tuple[Callable[[], File], ...] = (interests, data, link)
