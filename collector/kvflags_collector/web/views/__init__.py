# SPDX-License-Identifier: Apache-2.0
"""What each page says, as one JSON document: the page shows nothing else, and the document is its twin at `.json`.

Pure functions of what is stored and of the address asked for. Figures keep their full digits here; `render` rounds.
"""
