# SPDX-License-Identifier: Apache-2.0
"""The collector: decides, stores, judges, reports. `serve.serve` runs it, `app.create_app` puts it together.

What may import what: `store` imports nothing of the others; `rollout`, `ingest`, `verdict` and `feedback` stand on it;
`api` and `web` stand on those and hold no rule of their own. None of them imports the command line.
"""
