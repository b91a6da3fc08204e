# SPDX-License-Identifier: Apache-2.0
"""The canary's prompts: plain words, the same in every run, from less than one KV block to many."""

from __future__ import annotations

import random

__all__ = ["LONGEST", "SHORTEST", "WORDS", "prompts"]

# Common words: a token or two each in any vocabulary, so that a prompt's tokens are about its words.
WORDS = (  # noqa: SIM905 (a list of 200 quoted words would be 200 lines)
    "about above after again answer before begin below book bring build carry cause change city clear close color "
    "country cover course cross cut day deep door draw dry early earth east enough even every eye face fact family far "
    "farm fast father field figure fine fire fish food foot form free front full give good great green ground group "
    "grow half hand hard head hear heat help high hold home horse hour house idea island keep kind king land large "
    "late learn leave left letter life light line list live long low main map mark measure mile mind money moon "
    "morning mother mountain move music name near never night north note number ocean open order other page paper "
    "part people piece place plain plan plant play point port pose power press problem product pull question quick "
    "rain reach read ready real record red rest river road rock room round rule run sail school science sea second "
    "seem sentence serve set ship short side sing sit six size sleep slow small snow song sound south space special "
    "spell stand star start state stay step still stop story street strong study sun sure table tail talk teach tell "
    "ten test thing think time top toward town travel tree true try turn under unit until use usual very voice vowel "
    "walk want war warm watch water wave way week weight west wheel white whole wind wood word work world write year"
).split()

SHORTEST, LONGEST = 24, 768


def prompts(count: int, longest: int = LONGEST) -> dict[str, str]:
    """Prompts by name. Lengths in words are spread evenly in their logarithm from SHORTEST to `longest`."""
    ratio = longest / SHORTEST
    lengths = [round(SHORTEST * ratio ** (n / max(1, count - 1))) for n in range(count)]
    return {f"{n + 1}-of-{count}": _words(n, length) for n, length in enumerate(lengths)}


def _words(seed: int, length: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=length))  # noqa: S311 (a text, not a secret)
