"""Every deliberate difference from Kafka that the comparisons know of, by name.

A comparison that would fail asks here whether it may; what it uses is counted and printed at the end of a run. Nothing else is
tolerated. ``test_differences.py`` has a test for each that shows both behaviours, and that Kafka opens the result.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """What Kafka does, what is done here, and why Kafka cannot tell."""

    name: str
    kafka: str
    ours: str


DELETED_FILES = Difference(
    "deleted files",
    "files that a truncation or deletion takes away are renamed `.deleted` and removed after file.delete.delay.ms",
    "they may go at once; both remove what an earlier run left when the log is opened",
)
LAZY_INDEX = Difference(
    "indexes of an empty segment",
    "the index files of a new segment are made when something first touches them: an append, a read, a flush",
    "they may be there earlier or later as long as the segment holds no batch",
)
LATE_STRETCH = Difference(
    "late stretch",
    "the indexes of the last segment are stretched to segment.index.bytes, with zeros, when the log is opened",
    "they are stretched by the first append; until then they hold their entries and nothing else",
)
WAITING_ENTRIES = Difference(
    "waiting index entries",
    "an index entry stands in the mapped file as soon as its batch is appended",
    "up to seven of each index wait in memory, until eight are written at once, or the segment is closed or cut",
)
STALE_ENTRIES = Difference(
    "stale index entries",
    "what a truncation cuts off an index stays in the file, behind the entries that count, until the file is trimmed",
    "zeros stand there",
)
WHOLE_BATCHES = Difference(
    "whole batches",
    "a fetch may end in the middle of a batch",
    "it ends with the last whole one",
)
ABORTED_WITHIN = Difference(
    "aborted transactions of a fetch",
    "the list may name transactions that begin behind the batches returned; what began below the log start offset is forgotten when an "
    "unclean opening finds no snapshot, and by a truncation, and begins with the first record behind it, in `.txnindex` too",
    "it names those that reach into them, each from where the log says that it began; so does `.txnindex` when it is made anew",
)
STABLE_IN_BATCH = Difference(
    "stable offset inside a batch",
    "a last stable offset that the log start offset has moved into a batch falls back to the batch's first offset",
    "it is the log start offset",
)
LARGEST_TIMESTAMP = Difference(
    "largest timestamp after a truncation",
    "of a segment that was reopened, it is what the time index says, and -1 where a truncation has emptied that",
    "it is what the batches say",
)
WHICH_REASON = Difference(
    "which of two reasons",
    "an append that is too large is refused for that, and a record without a key before its time is looked at; so is a batch that contradicts "
    "itself for what its producer may not send",
    "records handed over one by one are looked at before they are encoded: their times come first; a contradiction comes before the producer",
)
OVERLAPPING = Difference(
    "overlapping batches",
    "a follower stores batches whose offsets overlap, as long as the last offsets ascend",
    "refused",
)
UNTRUE_RECORDS = Difference(
    "batches that contradict themselves",
    "stored where nobody looks: a coordinator's or a leader's batch with other offsets than records, records whose length is wrong",
    "refused: Kafka's own reader cannot read them",
)
FULL_INDEX = Difference(
    "segments too wide for their index",
    "a cleaner that would write more index entries than fit fails, and does not clean the partition any more",
    "what does not fit gets no entry, as in a rebuilt index",
)
DOUBTFUL = Difference(
    "transaction index and markers",
    "a cleaner believes `.txnindex`: of what that wrongly calls aborted, nothing is left",
    "what markers and index disagree about is kept",
)
KAFKA_FAILS = Difference(
    "failures of Kafka",
    "an append whose offsets do not fit a segment leaves one behind that no append can reach; a coordinator's compressed batch with a "
    "base offset cannot be numbered; of a follower's batch that ends before it begins the bytes stay, refused or not",
    "the first leaves nothing behind; the second is numbered like an uncompressed one; the third is refused",
)
UNTOUCHED = Difference(
    "killed without a change",
    "a process that opened a log after a clean end and was killed leaves an unclean end",
    "as long as it changed nothing, the end is still the clean one",
)
EPOCH_OF_REFUSED = Difference(
    "epoch of a refused append",
    "an append that is refused late, or is a duplicate, leaves its leader epoch in the epoch file, at the log end offset",
    "checked first: a refused append changes nothing",
)
ROLL_OF_REFUSED = Difference(
    "roll of a refused append",
    "an append that is refused late, or is a duplicate, may have rolled already: an empty segment stays",
    "checked first: a refused append changes nothing",
)
EARLY_ROLL = Difference(
    "early roll",
    "a segment that was reopened or truncated may take more batches than its index could hold if it had to be rebuilt; "
    "an append of many batches may fill an index half-way; neither can be recovered",
    "rolls before an index rebuilt from the log would be full",
)
EMPTY_ROLL = Difference(
    "forced roll of an empty log",
    "replaces the empty segment's files",
    "nothing is done",
)
TIME_LOOK_UP = Difference(
    "time look-up",
    "gives up after the first segment whose largest timestamp (or modification time) reaches the target",
    "goes on with the later segments: finds what Kafka finds, and what it misses",
)
STALE_LSO = Difference(
    "stable offset after a truncation",
    "the last stable offset may be stale after a truncation until the next append or high watermark",
    "recomputed at once",
)
BEHIND_A_HOLE = Difference(
    "empty segment behind a hole",
    "a segment that was rolled behind a truncation inside a batch, and holds nothing when its writer is killed, keeps the log end there",
    "the log ends where its last batch does, as when the truncated segment were the last one: records may be missing in between; where that "
    "is below its start, nothing but an empty segment at the start stays",
)
GAP_OF_ANOTHER = Difference(
    "gap of another writer",
    "offsets that no segment holds are passed over",
    "where one of ours was killed, and a broker after it with the same recovery point, nobody can tell such a gap from bytes that were lost "
    "with the power: what stands behind it is set aside and told",
)
EPOCH_AT_END = Difference(
    "leader epoch at the end",
    "of a log without records, whose start is its end, every other unclean opening finds the epoch of the batches below in them again, "
    "and puts it at the end; the opening after that drops it there",
    "an epoch that begins at the end is none, however often the log is opened",
)
UNRECOVERABLE = Difference(
    "recovery that Kafka cannot do",
    "an index that fills up while a segment is recovered fails the load, and so does a producer whose transaction was deleted with "
    "the records below the log start offset",
    "opens",
)


# Of damaged directories

ASKED_FIRST = Difference(
    "asked first",
    "an unclean opening drops whatever stands behind the first bad byte, later segments too, without a word",
    "opening refuses where whole batches stand behind it; `recover` cuts them when told, and keeps what it cuts",
)
INDEX_CHECKED = Difference(
    "last index entry",
    "after a clean end, an index entry behind the end of the segment hides the whole segment",
    "the entry is held against the segment, and the index made again",
)
TAIL_CUT = Difference(
    "rest at the end",
    "after a clean end, half a batch or up to 17 zeros stay, and what is appended behind them is lost; more zeros fail the load",
    "cut before anything is appended",
)
HEADER_CHECKED = Difference(
    "outside the checksum",
    "a flipped bit of magic, base offset or epoch passes, or empties the segment",
    "magic is one that is known, offsets ascend, epochs do not fall: else it is damage",
)
GAP_TOLD = Difference("missing segments", "a gap is silent", "told as a warning")
TIMES_REBUILT = Difference(
    "lost time index", "stays empty, and look-ups by time find nothing in the segment", "made again from the batches"
)
ABORTED_REBUILT = Difference("lost transaction index", "aborted records are served as committed ones", "made again from the markers")
PRODUCERS_SCANNED = Difference(
    "lost snapshots", "after a clean end the producers are forgotten, and duplicates accepted", "found again by a scan"
)
EPOCHS_FOUND = Difference(
    "lost leader epochs", "stay lost, unless a segment that holds their batches is recovered", "found again in the batches"
)
ZEROS_REBUILT = Difference("index of zeros", "used for ever, after an interrupted swap", "made again")
READ_CHECKED = Difference("reads", "do not look at checksums", "a batch that is wrong is an error, not an answer")
START_ABOVE_END = Difference(
    "start above the end", "the whole log is deleted", "what is taken out is kept, or nothing is done until told"
)

DIFFERENCES: tuple[Difference, ...] = tuple(value for value in dict(globals()).values() if isinstance(value, Difference))


class Uses:
    """How often each difference was met."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def count(self, difference: Difference) -> None:
        """One more."""
        self.counts[difference.name] += 1

    def lines(self) -> list[str]:
        """A line each, for the end of a run."""
        return [f"{self.counts[difference.name]:7} {difference.name}: {difference.ours}" for difference in DIFFERENCES]
