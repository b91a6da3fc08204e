# SPDX-License-Identifier: Apache-2.0
"""Text of strangers: nothing is left in it that acts on what shows it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvflags.inert import inert


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("a\u2066b\u200fc", "a\\u2066b\\u200fc"),
        ("over\rwritten", "over\\rwritten"),
        ("nul\0 c1\x9b", "nul\\x00 c1\\x9b"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("two\r\nlines\tand a tab", "two\nlines\tand a tab"),
        ("Grüße \U0001f469\u200d\U0001f4bb a\u200cb", "Grüße \U0001f469\u200d\U0001f4bb a\u200cb"),
    ],
)
def test_what_acts_is_written_out_and_what_is_text_stays(text, shown):
    assert inert(text) == shown


@given(st.text())
def test_nothing_active_is_left_and_once_is_enough(text):
    shown = inert(text)
    left = {c for c in shown if unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp", "Cs", "Co"}}
    assert left <= set("\n\t\u200c\u200d")
    assert inert(shown) == shown
