"""``convert`` of batches whose checksum is right and whose records nobody can read: damage, whatever their headers count."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from make_log import GZIP, batch, record, segment

from offsetlog import CorruptionError, DecompressionError, Log, convert
from offsetlog._append_arguments import Compression

ROWS = [(b"k", b"v%d" % slot) for slot in range(3)]
RECORDS = b"".join(record(slot, row) for slot, row in enumerate(ROWS))
UNREADABLE = {
    "gzip cut short": batch(0, codec=GZIP, record_count=3, last_offset_delta=2, payload=gzip.compress(RECORDS)[:-12]),
    "more counted": batch(0, record_count=5, last_offset_delta=4, payload=RECORDS),
    "fewer counted": batch(0, record_count=2, last_offset_delta=2, payload=RECORDS),
    "fewer counted in gzip": batch(0, codec=GZIP, record_count=2, last_offset_delta=2, payload=gzip.compress(RECORDS)),
    "bytes behind the last": batch(0, record_count=3, last_offset_delta=2, payload=RECORDS + b"junk"),
    "bytes behind the last in gzip": batch(
        0, codec=GZIP, record_count=3, last_offset_delta=2, payload=gzip.compress(RECORDS + b"junk")
    ),
    "the same offset twice": batch(
        0, record_count=3, last_offset_delta=2, payload=b"".join(record(delta, ROWS[0]) for delta in (0, 0, 2))
    ),
    "behind the last offset": batch(0, record_count=2, last_offset_delta=1, payload=record(0, ROWS[0]) + record(7, ROWS[1])),
    "before the first offset": batch(0, record_count=2, last_offset_delta=1, payload=record(0, ROWS[0]) + record(-3, ROWS[1])),
    "no records": batch(0, record_count=3, last_offset_delta=2, payload=b""),
}


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("name", UNREADABLE)
def test_records_that_nobody_can_read_are_damage(tmp_path: Path, name: str, compression: Compression | None) -> None:
    """The error is that of a scan, with the old file; a copy would carry them on, and compressing anew seal them."""
    old = tmp_path / "old" / "t-0"
    old.parent.mkdir()
    sound = batch(10, ROWS)
    path = segment(old, 0, UNREADABLE[name], sound)
    with pytest.raises((CorruptionError, DecompressionError)) as scanned:
        list(Log.open(old).scan())
    with pytest.raises(type(scanned.value)) as caught:
        convert(old, tmp_path / "new" / "t-0", compression=compression)
    assert str(caught.value) == str(scanned.value)
    assert caught.value.path == str(path)
    assert list((tmp_path / "new").iterdir()) == []
    path.write_bytes(sound)
    assert convert(old, tmp_path / "new" / "t-0", compression=compression).records == len(ROWS)
