# SPDX-License-Identifier: Apache-2.0
"""What was refused has an id, in the answer and in the log, and no secret goes into the log with it."""

import logging


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
