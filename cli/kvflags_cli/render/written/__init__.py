# SPDX-License-Identifier: Apache-2.0
"""The report to hand on: `sections` lays a document out, `markdown` and `html` write it. Same document, same bytes."""
