# SPDX-License-Identifier: Apache-2.0
"""A webhook that cannot be: refused before anything is opened."""

import pytest


@pytest.mark.parametrize(
    ("url", "secret", "says"),
    [
        ("http://127.0.0.1:9/", "", "error: the webhook's secret has 16 bytes at least"),
        ("http://u:p@127.0.0.1/", "0" * 32, "error: --webhook: an address holds no user name or password"),
        ("nowhere", "0" * 32, "error: --webhook: it is no http(s) address"),
    ],
)
def test_a_wrong_webhook_is_a_usage_error(kvflags, monkeypatch, tmp_path, url, secret, says):
    monkeypatch.setenv("KVFLAGS_WEBHOOK_SECRET", secret)
    wrong = kvflags("serve", "--port", "0", "--webhook", url)
    assert (wrong.code, wrong.err.splitlines()[0]) == (2, says)
    assert list(tmp_path.iterdir()) == []
