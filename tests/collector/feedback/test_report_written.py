# SPDX-License-Identifier: Apache-2.0
"""The report as a command writes it, of a fleet that was measured: Markdown, one HTML file, and an exit code."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from listening import listening
from markdown_it import MarkdownIt
from stored_fleet import DAY_US, Fleet

from kvflags.telemetry.instruments import InstrumentName as Name
from kvflags_cli.render.written.html import html
from kvflags_cli.render.written.markdown import markdown
from kvflags_cli.run import run
from kvflags_collector.app import create_app
from kvflags_collector.feedback import given
from kvflags_collector.settings import Settings

HOSTILE = "<script>alert(1)</script> @maintainers #123 | [x](http://evil) ![y](z) `code`\n## heading www.evil"


class _Tags(HTMLParser):
    """What a page is made of, and its words."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text += data


def _ready(scene):
    fleet = Fleet(scene)
    fleet.store({Name.TTFT: -0.3})
    fleet.judge_at(4.2)
    with scene.db.write() as conn:
        said = {"sign": "negative", "tags": ["latency"], "comment": HOSTILE}
        given.give(conn, scene.key, fleet.names[0], said, author="<b>ann</b>", now=scene.now)
    scene.now = fleet.event_us + 10 * DAY_US
    return fleet


@pytest.fixture
def fleet(copied):
    """20 deployments, half of them treated, 30 % faster, ready; and somebody who says bad things of one."""
    return copied(_ready)


def test_markdown_says_what_to_do_first_and_shows_what_it_rests_on(fleet):
    document = fleet.report()
    text = markdown(document)
    assert text == markdown(fleet.report())
    head = "## Cross layer blocks (cross-layer-blocks): field report, 2027-01-12"
    advice = "**Recommendation: make it the default for the scope below, and leave it as it is elsewhere.**"
    assert text.splitlines()[:3] == [head, "", advice]
    for part in (
        "10 treated and 10 control deployments, 0 not compared; 10 treated and 10 control events",
        "| outcome | control | treatment | change | interval | limit | standing |",
        "| inter token latency | 10 ms | 10 ms |",
        "| FLASH\\_ATTN, gqa, vLLM 0.32, 4 heads, block 16 | 10 / 10 |",
        "The default would take effect on 20 of 20 deployments (100 %)",
        "20 replacements in both arms: median 0 min until both roles were back",
        "Ask for BHLNC where backend FLASH\\_ATTN",
        "VLLM\\_KV\\_CACHE\\_LAYOUT=LBHNC",
        "kvflags report cross-layer-blocks --as-of 2027-01-12T12:01:00.000000Z",
    ):
        assert part in text, part


def test_what_a_fleet_says_stays_text(fleet):
    document = fleet.report()
    shown = MarkdownIt("commonmark").enable("table").render(markdown(document))
    page = _Tags(shown)
    assert page.tags == {"h2", "h3", "p", "strong", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"}
    plain = page.text.replace("\u200b", "")
    assert HOSTILE.replace("\n", " ") in plain
    for acts in ("@maintainers", "#123", "http://", "www.evil"):
        assert acts not in page.text, "GitHub would make a mention or a link of it"
    whole = _Tags(html(document))
    assert whole.tags.isdisjoint({"script", "img", "a", "b", "link", "iframe"})
    assert not any(name.startswith("on") or name in {"src", "href"} for name in whole.attributes)
    assert HOSTILE.replace("\n", " ") in whole.text
    assert html(document) == html(fleet.report())


@pytest.mark.parametrize(
    ("effects", "days", "state", "code"),
    [
        ({Name.TTFT: -0.3}, 10, "ready", 0),
        ({Name.TTFT: -0.3, Name.ITL: 0.1}, 10, "regression", 1),
        ({Name.TTFT: -0.3}, 4.2, "waiting", 3),
    ],
)
def test_check_exits_as_the_verdict_says_in_every_format(copied, capsys, effects, days, state, code):
    fleet = copied(Fleet)
    scene = fleet.scene
    fleet.store(effects)
    fleet.judge_at(days)
    app = create_app(Settings(db=str(scene.db.url)), scene.db, clock=lambda: scene.now)
    with listening(app) as url:
        for form in ("table", "json", "markdown", "html"):
            asked = ["report", scene.key, "--collector", url, "--format", form]
            assert run([*asked, "--check"]) == code
            shown = capsys.readouterr()
            assert (state in shown.out.lower(), shown.err) == (True, "")
            assert run(asked) == 0
            assert capsys.readouterr().out == shown.out, "the same inputs, the same bytes"
        assert run(["report", scene.key, "--collector", url, "--json", "--format", "html"]) == 2
        capsys.readouterr()
        assert run(["report", scene.key, "--collector", url, "--json", "--as-of", "2027-01-05T00:00:00Z"]) == 0
        assert json.loads(capsys.readouterr().out)["data"]["as_of"] == "2027-01-05T00:00:00.000000Z"
        assert run(["report", scene.key, "--collector", url, "--as-of", "yesterday"]) == 2
