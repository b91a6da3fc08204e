# SPDX-License-Identifier: Apache-2.0
"""Signed decisions: what was signed comes back, and nothing else ever does."""

import base64
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvflags.decision.signed import BadToken, Claims, sign, verify
from kvflags.flags import Decision
from kvflags.signatures import new_key, public_key

# A machine that is busy with engines takes its time.
unhurried = settings(deadline=None)

KEY = bytes(range(32))
PUBLIC = public_key(KEY)
CLAIMS = Claims(
    flag="cross-layer-blocks",
    feature="cross_layer_blocks",
    deployment="eu/prod/chat",
    generation="r41",
    epoch=7,
    variant="on",
    arm="treatment",
    comparison="included",
    revision=3,
    expiry=1_800_000_000,
)
TOKEN = sign(KEY, CLAIMS)
NOW = 1_700_000_000.0

# At most 253 bytes, as settings and API let them in.
ids = st.text(min_size=1, max_size=63)

claims = st.builds(
    Claims,
    flag=st.text(min_size=1, max_size=40),
    feature=st.text(min_size=1, max_size=40),
    deployment=ids,
    generation=ids,
    epoch=st.integers(0, 2**31),
    variant=st.sampled_from(["on", "off"]),
    arm=st.sampled_from(["treatment", "control", None]),
    comparison=st.sampled_from(["included", "excluded"]),
    revision=st.integers(0, 2**31),
    expiry=st.integers(int(NOW) + 1, 2**40),
)


def why(token: str, *, key: str = PUBLIC, now: float = NOW, **expected: str) -> str:
    with pytest.raises(BadToken) as caught:
        verify(key, token, now, **expected)
    assert caught.value.hint
    return caught.value.why


def test_the_token_on_the_wire() -> None:
    payload, signature = TOKEN.split(".")
    assert base64.urlsafe_b64decode(payload + "==").decode() == (
        '{"arm":"treatment","comparison":"included","deployment":"eu/prod/chat","epoch":7,"expiry":1800000000,'
        '"feature":"cross_layer_blocks","flag":"cross-layer-blocks","generation":"r41","revision":3,"variant":"on"}'
    )
    assert len(base64.urlsafe_b64decode(signature + "==")) == 64
    # The public key of these 32 bytes is published in many test suites.
    assert base64.urlsafe_b64decode(PUBLIC + "=").hex() == (
        "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    )


def test_the_decision_that_it_equals() -> None:
    assert verify(PUBLIC, TOKEN, NOW).decision(TOKEN) == Decision(
        feature="cross_layer_blocks",
        flag="cross-layer-blocks",
        variant="on",
        reason="handed_out",
        arm="treatment",
        comparison="included",
        revision=3,
        bucket=None,
        epoch=7,
        state="pinned",
        signed=TOKEN,
    )


@unhurried
@given(claims)
def test_what_was_signed_comes_back(signed: Claims) -> None:
    key = new_key()
    token = sign(key, signed)
    assert verify(public_key(key), token, NOW, deployment=signed.deployment, generation=signed.generation) == signed
    assert why(token) == "bad_signature"


def test_the_longest_ids_fit_into_a_token() -> None:
    longest = replace(CLAIMS, deployment="\U0001f680" * 63, generation="\x01" * 253)
    assert verify(PUBLIC, sign(KEY, longest), NOW) == longest


@unhurried
@given(st.integers(0, len(TOKEN) - 1), st.characters(codec="ascii"))
def test_no_changed_letter_goes_unnoticed(place: int, letter: str) -> None:
    changed = TOKEN[:place] + letter + TOKEN[place + 1 :]
    if changed != TOKEN:
        assert why(changed) in {"malformed", "bad_signature"}


@unhurried
@given(st.text(max_size=300))
def test_no_text_is_a_token_or_a_key(text: str) -> None:
    assert why(text) in {"malformed", "bad_signature"}
    assert why(TOKEN, key=text) in {"bad_key", "bad_signature"}


def test_it_is_void_from_the_second_of_its_expiry() -> None:
    assert verify(PUBLIC, TOKEN, CLAIMS.expiry - 0.001) == CLAIMS
    assert why(TOKEN, now=CLAIMS.expiry) == "expired"


@pytest.mark.parametrize("other", [{"deployment": "eu/prod/search"}, {"generation": "r42"}])
def test_it_is_bound_to_deployment_and_generation(other: dict[str, str]) -> None:
    mine = {"deployment": "eu/prod/chat", "generation": "r41"}
    assert verify(PUBLIC, TOKEN, NOW, **mine) == CLAIMS
    assert why(TOKEN, **(mine | other)) == "for_another"


def test_another_key_is_not_believed() -> None:
    assert why(TOKEN, key=public_key(new_key())) == "bad_signature"


@pytest.mark.parametrize(
    "change",
    [
        {"variant": "maybe"},
        {"arm": "both"},
        {"comparison": None},
        {"epoch": "7"},
        {"epoch": True},
        {"expiry": 1.8e9},
        {"deployment": None},
        {"flag": ["x"]},
    ],
)
def test_a_claim_of_another_shape_is_refused_even_when_signed(change: dict) -> None:
    assert why(sign(KEY, replace(CLAIMS, **change))) == "malformed"


def test_a_signed_document_that_lacks_a_claim_is_refused() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    for payload in (b"{}", b"[]", b"null", b"\xff", json.dumps({"flag": "f"}).encode()):
        signature = Ed25519PrivateKey.from_private_bytes(KEY).sign(payload)
        parts = [base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (payload, signature)]
        assert why(".".join(parts)) == "malformed"
