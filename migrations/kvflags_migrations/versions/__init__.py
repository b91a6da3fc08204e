# SPDX-License-Identifier: Apache-2.0
"""One file a revision, in a line. Tables are written out, so that a change of `store` does not change the past."""
