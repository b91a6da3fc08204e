# SPDX-License-Identifier: Apache-2.0
"""Whatever a client can set is only shown: on no page does it run, turn the text around it, or push the page apart."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from urllib.parse import urlencode

import httpx
import pytest
from bundles import bundle, key_of, signed
from filled import KEY
from markdown_it import MarkdownIt
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from playwright.sync_api import Page, expect
from sites import Site

from kvflags.inert import inert
from kvflags.telemetry.attributes import SPAN_NAME, Name
from kvflags_cli.render.written.html import html
from kvflags_cli.render.written.markdown import markdown
from kvflags_collector.web import places

HOSTILE = {
    "script": "<script>window.ran = 1</script>",
    "markup": '"><img src=x onerror="window.ran=1"><svg onload=window.ran=1>',
    "attribute": "' onmouseover='window.ran=1' autofocus onfocus='window.ran=1",
    "link": "javascript:window.ran=1//<a href='javascript:window.ran=1'>x</a>",
    "template": "{{ 7*7 }}{% raw %}${7*7}",
    "turned": "\u202egnihtyna\u202c\u2066x",
    "long": "w" * 10_000,
    "emoji": "\U0001f600\U0001f9d1\u200d\U0001f680 \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
}
# What turns text around, or what follows it.
_MARKS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_FACTS = {"vllm": "0.32.0", "nixl": "1.5.1", "connector": "NixlConnector", "isolation": "recreate", "block_size": 16}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """For all of them: what was said before is still there, and none of it may act."""
    site = Site(tmp_path_factory.mktemp("hostile"), "waiting", hub=True)
    yield site
    site.service.stop()


@pytest.mark.parametrize("kind", HOSTILE)
def test_it_is_shown_and_does_nothing(site, look, kind):
    text = HOSTILE[kind]
    page = look(viewport={"width": 1280, "height": 900})
    page.on("dialog", lambda dialog: pytest.fail(f"a dialog: {dialog.message}"))
    sent = {"Authorization": f"Bearer {site.token('ann', 'admin')}"}
    with httpx.Client(base_url=site.url, headers=sent, timeout=60, trust_env=False) as http:
        taken = _send_everywhere(http, kind, text)
        assert "comment" in taken
        comment = _until_it_is_told(http, text)
        shown = {path: _shown(page, f"{site.url}{path}") for path in _pages(comment, taken, text)}
        for field in taken & {"comment", "reason"}:
            assert inert(text)[:2000] in shown[f"/rollouts/{KEY}"], field
        assert inert(text) in shown[f"/rollouts/{KEY}/feedback/{comment['id']}"]
        assert inert(text) in shown[places.deployment(comment["deployment"])]
        if "organisation" in taken:
            assert text[:200] in shown["/hub"]
        document = _exports_are_json(http)
    # What is handed on: a file, and a comment in a pull request.
    page.goto("about:blank")
    page.set_content(MarkdownIt("commonmark").enable("table").render(markdown(document)))
    _does_nothing(page)
    page.set_content(html(document))
    _inert(page)
    # A browser puts what can be seen into the field, and a link may hold the rest.
    page.goto(f"{site.url}/rollouts/{KEY}?{urlencode({'q': text[:2000]})}")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_label("Name contains")).to_have_value("".join(filter(str.isprintable, text))[:200])
    _inert(page)
    with page.expect_navigation(url="**arm=**"):
        page.get_by_role("button", name="Filter").click()
    _inert(page)


def test_an_address_that_names_nothing_is_a_page_that_says_so(site, look, accessible):
    page = look(broken_is_fine=True)
    answer = page.goto(f"{site.url}/deployments/?id=%E2%80%AEx%00")
    assert answer.status == 400
    expect(page.get_by_role("heading", level=1)).to_have_text("the address has control characters")
    _inert(page)
    accessible(page)


def _pages(comment: dict, taken: set[str], text: str) -> list[str]:
    """Every page that shows something of what was sent."""
    known = [comment["deployment"], *([text[:253]] if "deployment" in taken else [])]
    said = f"/rollouts/{KEY}/feedback/{comment['id']}"
    return ["/", f"/rollouts/{KEY}", said, "/hub", *map(places.deployment, known)]


def _shown(page: Page, address: str) -> str:
    """What a page says. It is there, and does nothing else."""
    answer = page.goto(address)
    assert answer is not None
    assert answer.status == 200, address
    expect(page.get_by_role("heading", level=1).first).to_be_visible()
    _inert(page)
    return page.locator("body").inner_text()


def _until_it_is_told(http: httpx.Client, text: str) -> dict:
    """Spans are rolled up a moment later, and a page shows evidence that may have been made before. The comment."""
    end = time.monotonic() + 120
    while True:
        page = http.get(f"/rollouts/{KEY}.json").json()
        comments = {one["comment"]: one for one in page["feedback"]["items"]}
        generations = [one["generation"] for one in http.get(f"/api/v1/flags/{KEY}/report").json()["deployments"]]
        if inert(text) in comments and any(one and one.startswith(text[:64]) for one in generations):
            return comments[inert(text)]
        assert time.monotonic() < end, (list(comments), generations)
        time.sleep(0.5)


def _send_everywhere(http: httpx.Client, kind: str, text: str) -> set[str]:
    """As much of the text into each field as the field takes; gives the fields that took it."""
    by = {"author": text[:200], "reason": text[:2000]}
    flag = f"/api/v1/flags/{KEY}"
    deployment = http.get("/api/v1/deployments").json()["items"][0]["deployment"]
    sends = {
        "comment": ("POST", f"{flag}/feedback", _feedback(deployment, text)),
        "reason": ("PUT", f"{flag}/target", by | {"percent": 40.0}),
        "criterion": (
            "PUT",
            flag,
            by | {"file": {"key": KEY, "feature": "cross_layer_blocks", "criteria": [text[:2000]]}},
        ),
        "deployment": ("POST", "/api/v1/engines/register", _engine(f"{kind}-a", text[:253], "g")),
        "generation": ("POST", "/api/v1/engines/register", _engine(f"{kind}-b", deployment, text[:253])),
        "backend": (
            "POST",
            "/api/v1/engines/register",
            _engine(f"{kind}-c", "d", "g", backend=text[:64], gpu=text[:200]),
        ),
        "problem": ("POST", "/api/v1/engines/register", _engine(f"{kind}-e", "f", "g") | {"problems": [text[:64]]}),
    }
    taken = set()
    for field, (method, path, body) in sends.items():
        status = http.request(method, path, json=body).status_code
        assert status in {200, 201, 400, 422}, field
        if status < 400:
            taken.add(field)
    answer = http.post(
        "/v1/traces", content=_failed(text, deployment), headers={"Content-Type": "application/x-protobuf"}
    )
    assert answer.status_code == 200
    return taken | _an_organisation(http, kind, text[:200])


def _an_organisation(http: httpx.Client, kind: str, name: str) -> set[str]:
    """Bundles hold no free text; what an organisation is called does."""
    today = datetime.now(UTC).date().isoformat()
    sent = http.post("/api/v1/hub/bundles", json=signed(key_of(kind), bundle(kind, made_on=today)))
    assert sent.status_code in {200, 201}, sent.text
    organisations = http.get("/api/v1/hub/organisations").json()["items"]
    [which] = [one["organisation"] for one in organisations if one["state"] == "pending"]
    called = {"author": "ann", "name": name}
    if http.post(f"/api/v1/hub/organisations/{which}/admit", json=called).status_code == 200:
        return {"organisation"}
    assert http.post(f"/api/v1/hub/organisations/{which}/dismiss", json={"author": "ann"}).status_code == 200
    return set()


def _feedback(deployment: str, text: str) -> dict:
    """A comment may hold anything, so an author who may not must not keep it out."""
    return {"author": "ann", "deployment": deployment, "sign": "negative", "comment": text}


def _engine(name: str, deployment: str, generation: str, **facts: str) -> dict:
    body = {"registration_id": name, "deployment": deployment, "generation": generation, "role": "decode"}
    return body | {"features": ["cross_layer_blocks"], "facts": _FACTS | facts}


def _failed(text: str, deployment: str) -> bytes:
    """A transfer that failed, of treatment, with the text in everything that a span says."""
    request = ExportTraceServiceRequest()
    of = request.resource_spans.add()
    of.resource.attributes.extend(_attributes({Name.DEPLOYMENT: deployment, Name.GENERATION: text}))
    now = time.time_ns()
    span = of.scope_spans.add().spans.add(name=SPAN_NAME, trace_id=b"t" * 16, span_id=b"s" * 8)
    span.start_time_unix_nano, span.end_time_unix_nano = now - 1000, now
    span.status.code = 2
    span.attributes.extend(_attributes({Name.ERROR_TYPE: text, Name.ARM: "treatment", text[:100]: text}))
    return request.SerializeToString()


def _attributes(of: dict[str, str]) -> list[KeyValue]:
    made = []
    for name, value in of.items():
        one = KeyValue(key=name)
        one.value.string_value = value
        made.append(one)
    return made


def _inert(page: Page) -> None:
    _does_nothing(page)
    assert page.viewport_size is not None
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def _does_nothing(page: Page) -> None:
    assert page.evaluate("window.ran") is None
    assert page.locator("body img, body script, body iframe, body object, body [autofocus]").count() == 0
    handlers = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames()).filter(n => n.startsWith('on'))"
    assert page.evaluate(handlers) == []
    links = "[...document.querySelectorAll('[href]')].map(one => one.getAttribute('href'))"
    assert not [link for link in page.evaluate(links) if link.strip().lower().startswith("javascript:")]
    text = page.evaluate("document.documentElement.textContent")
    assert not set(_MARKS) & set(text)


def _exports_are_json(http: httpx.Client) -> dict:
    """Gives the last of them, the report."""
    for path in ("/index.json", "/hub.json", f"/rollouts/{KEY}.json", f"/api/v1/flags/{KEY}/report"):
        answer = http.get(path)
        assert answer.headers["content-type"] == "application/json"
        document = json.loads(answer.text)
    return document
