# SPDX-License-Identifier: Apache-2.0
"""The report's view as a whole: piped, and in a terminal of 80 columns."""

import io

import pytest
from rich.console import Console

from kvflags_cli.output import show
from kvflags_cli.render import VIEWS

PIPED = """\
… WAITING  too_few_deployments
why   1 treated deployment, 4 are needed.
      No deployment was observed for 7 days.
next  Raise the count: kvflags rollout set cross-layer-blocks --count 4

FLAG
flag         cross-layer-blocks (cross_layer_blocks)
phase        running, revision 2
target       1 deployment
generated    2026-11-30 22:10:03 UTC
fresh as of  2026-11-30 22:10:02 UTC

ARMS
                          TREATMENT  CONTROL
deployments                       1        1
transfers                     1,250        -
failed                            2        -
  transfer_failed                 2        -
bytes                        12 MiB        -
descriptors per transfer       5.25        -
blocks per transfer            5.25        -
post time mean             0.418 ms        -
post time p50                0.4 ms        -
post time p99               1.25 ms        -
transfer time mean           3.1 ms        -
transfer time p50            2.9 ms        -
transfer time p99             12 ms        -

TRANSFERS BY DEPLOYMENT
DEPLOYMENT        ARM        TRANSFERS  FAILED  DESCR    POST  TRANSFER
demo/lab/a r2 #1  treatment      1,250       2   5.25  0.4 ms    2.9 ms
demo/lab/b r2 #1  control            -       -      -       -         -

LAYOUT BY DEPLOYMENT
DEPLOYMENT        VARIANT  REQUESTED  RESOLVED  REGIONS  LAYERS  EFFECTIVE  EXERCISED
demo/lab/a r2 #1  on       BHLNC      BHLNC           1       8  yes        yes
demo/lab/b r2 #1  off      -          LBHNC           8       8  no         no

NOTES
demo/lab/a r2 #1  failed: 2 transfer_failed
demo/lab/a r2 #1  dropped: 3 spans
demo/lab/b r2 #1  not compared: forced
demo/lab/b r2 #1  not eligible: It is not stated what keeps generations apart (isolation)

ALARMS
KIND   DEPLOYMENT     WHAT                                   SINCE
mixed  demo/lab/c r1  prefill runs LBHNC, decode runs BHLNC  2026-11-30 22:09:00 UTC

FEEDBACK
0 positive, 1 negative
ID  SIGN      SOURCE    DEPLOYMENT  TAGS   COMMENT
m1  negative  measured  demo/lab/c  mixed  mixed generation

DATA HEALTH
effective among treated  100 %
mixed generations        1
dropped spans            3
incomplete transfers     0
expired on prefill       0
canary mismatches        -
"""


def test_piped(report_document, capsys):
    show("report", report_document(), as_json=False)
    assert capsys.readouterr().out == PIPED


def test_an_empty_fleet_shows_no_empty_tables(report_document, capsys):
    nothing = {"positive": 0, "negative": 0, "items": []}
    health = {
        "effective_share": None,
        "mixed_generations": 0,
        "dropped_spans": 0,
        "expired": 0,
        "incomplete": 0,
        "canaries": {},
    }
    show(
        "report",
        report_document(arms=[], deployments=[], alarms=[], feedback=nothing, data_health=health),
        as_json=False,
    )
    head, _, _ = PIPED.partition("\nARMS\n")
    assert capsys.readouterr().out == (
        f"{head}\nFEEDBACK\n0 positive, 0 negative\n\nDATA HEALTH\n"
        "effective among treated  -\nmixed generations        0\n"
        "dropped spans            0\nincomplete transfers     0\nexpired on prefill       0\n"
        "canary mismatches        -\n"
    )


@pytest.fixture
def long_names(report_document):
    document = report_document()
    for one in document["deployments"]:
        one["deployment"] = "production-eu-west-1/chat-assistants/llama-3.3-70b-instruct"
    return document


def _drawn(document, width):
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    for part in VIEWS["report"](document):
        console.print(part)
    return console.file.getvalue()


def test_it_fits_80_columns_and_loses_no_letter_of_an_id(long_names):
    text = _drawn(long_names, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text.replace("… WAITING", "")
    for words, second_column in (("LAYOUT BY DEPLOYMENT", "VARIANT"), ("TRANSFERS BY DEPLOYMENT", "ARM")):
        rows = text.partition(words)[2].partition("\n\n")[0].splitlines()
        width = next(row.index(second_column) for row in rows if second_column in row)
        whole = "".join(row[:width].strip() for row in rows)
        assert whole.count("production-eu-west-1/chat-assistants/llama-3.3-70b-instruct") == 2


def test_piped_rows_are_whole(long_names, capsys):
    show("report", long_names, as_json=False)
    rows = [line for line in capsys.readouterr().out.splitlines() if "llama-3.3-70b-instruct" in line]
    assert len(rows) == 8


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("waiting", "… WAITING"),
        ("on_track", "→ ON_TRACK"),
        ("hold", "! HOLD"),
        ("neutral", "= NEUTRAL"),
        ("regression", "✗ REGRESSION"),
        ("invalid", "✗ INVALID"),
        ("ready", "✓ READY"),
        ("of_a_newer_collector", "? OF_A_NEWER_COLLECTOR"),
    ],
)
def test_every_verdict_has_an_icon_and_a_word(report_document, state, shown):
    document = report_document(verdict={"state": state, "reason": "r", "why": [], "next": "n"})
    assert _drawn(document, 80).splitlines()[0] == f"{shown}  r"


def _effect(outcome, change, low, high, limit, standing):
    return {"outcome": outcome, "change": change, "low": low, "high": high, "limit": limit, "standing": standing}


EFFECTS = [
    _effect("time_to_first_token", -0.19, -0.27, -0.1, "<+0%", "met"),
    _effect("failed_transfers", -0.1, -0.5, 0.8, "<x3", "met"),
    _effect("inter_token_latency", 0.012, -0.009, None, "<+3%", "open"),
    _effect("kv_blocks", None, None, None, ">-1%", "met"),
]
STRATA = [
    {"name": "FLASH_ATTN, H100", "treated": 27, "control": 29, "ready": True, "outcomes": EFFECTS[:1]},
    {"name": "FLASHINFER, H100", "treated": 3, "control": 4, "ready": False, "outcomes": []},
]


def test_effects_with_intervals_and_limits(report_document, capsys):
    show("report", report_document(outcomes=EFFECTS, strata=STRATA), as_json=False)
    part = capsys.readouterr().out.partition("\nOUTCOMES\n")[2].partition("\nARMS\n")[0]
    assert [line.split() for line in part.splitlines() if line] == [
        ["OUTCOME", "CHANGE", "INTERVAL", "LIMIT", "STANDING"],
        ["time", "to", "first", "token", "-19.0%", "-27.0%", "to", "-10.0%", "<+0%", "met"],
        ["failed", "transfers", "x0.9", "x0.5", "to", "x1.8", "<x3", "met"],
        ["inter", "token", "latency", "+1.2%", "-0.9%", "to", "unbounded", "<+3%", "open"],
        ["kv", "blocks", "-", "-", ">-1%", "met"],
        ["STRATA", "(time", "to", "first", "token)"],
        ["STRATUM", "TREATED", "CONTROL", "CHANGE", "INTERVAL", "READY"],
        ["FLASH_ATTN,", "H100", "27", "29", "-19.0%", "-27.0%", "to", "-10.0%", "yes"],
        ["FLASHINFER,", "H100", "3", "4", "-", "-", "no"],
    ]
