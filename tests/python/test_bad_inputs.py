"""Every kind of wrong input that Kafka's own code was tried with, one test each, by number, and what reading makes of it.

=======  ==========================================================================================================
numbers  what is wrong
=======  ==========================================================================================================
1-8      framing and ends of a ``.log``: lengths, cut batches, stray bytes, zeros
9-15     magic, checksums, base offsets that are altered
16-22    leader epochs, offsets out of order or out of their segment, batches twice
23-31    attributes, codecs, counts, lengths of records
32-35    control records
36-42    fields of a record
43-55    compressed payloads: bytes behind them, cut, checksums, frames, bombs
56-65    messages of magic 0 and 1
66       size of a segment
67-74    names and neighbours in a directory
75-84    indexes
85       producer snapshots
86-92    checkpoints
93-96    ``partition.metadata``, ``meta.properties``, the clean marker
97, 98   records of internal topics
=======  ==========================================================================================================
"""

from __future__ import annotations

from pathlib import Path

import bad_batches
import bad_files
import bad_payloads
import pytest
from bad_inputs import CASES

# Named so that what only fills the table is not taken for unused.
MODULES = (bad_batches, bad_payloads, bad_files)
LAST = 98


@pytest.mark.parametrize("number", sorted(CASES), ids=lambda number: f"{number}-{CASES[number].__name__}")
def test_bad_input(tmp_path: Path, number: int) -> None:
    CASES[number](tmp_path)


def test_no_number_is_missing() -> None:
    assert sorted(CASES) == list(range(1, LAST + 1))
