# SPDX-License-Identifier: Apache-2.0
"""What was refused has an id, in the answer and in the log, and no secret goes into the log with it."""

import asyncio
import logging

from kvflags_collector.api.metrics import Counted
from kvflags_collector.ingest.instruments import Instruments


def test_the_id_of_the_answer_is_in_the_log(guarded, caplog):
    caplog.set_level(logging.DEBUG)
    answer = guarded.ask("GET", "/api/v1/flags/clb", "kvf_wrong", headers={"Cookie": "secret"})
    [record] = [one for one in caplog.records if one.getMessage() == "request refused"]
    assert (record.request_id, record.status) == (answer.headers["X-Request-Id"], 401)
    assert (record.method, record.route) == ("GET", "/api/v1/")
    # Nothing of what the client sent, secrets least of all.
    assert all(
        "kvf_wrong" not in repr(vars(one)) and "secret" not in repr(vars(one))
        for one in caplog.records
        if one.name.startswith("kvflags")
    )


def test_what_succeeds_has_none(guarded):
    assert "X-Request-Id" not in guarded.ask("GET", "/livez").headers


def test_however_many_are_to_come_again_the_log_has_a_line_and_a_fault_has_each(caplog):
    async def ask(status: int, times: int) -> None:
        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": status, "headers": []})

        async def sink(message):
            pass

        counted = Counted(app, Instruments())
        for _ in range(times):
            await counted({"type": "http", "method": "POST", "path": "/v1/traces"}, None, sink)

    asyncio.run(ask(503, 50))
    asyncio.run(ask(500, 2))
    assert caplog.messages == ["requests are answered with 503, and come again", "request refused", "request refused"]
