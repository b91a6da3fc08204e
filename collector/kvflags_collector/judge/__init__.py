# SPDX-License-Identifier: Apache-2.0
"""From what is stored to the verdict's arrays: events are found, measured, frozen once, and read back.

`moments` finds them in the ledger, `hours` measures them, `freeze` writes them, `evidence` reads them for `verdict`;
`generations`, `layout` and `inputs` add what stands in the ledger now.
"""
