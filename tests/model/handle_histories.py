"""Histories: verbs one after the other, each followed by questions to handles of every kind. Each step has a seed of its own, so that a
history that fails can be made shorter by leaving steps out."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from codec import Batch
from handles import KINDS, NAME, Remote, Site
from verbs import T0, Drawer, Verb, after, read, written_end

from model import OUT_OF_RANGE, Question, State, fetched

STEPS = 12
SHORTER_MAX = 60
# For these a handle in another process need not look when they ask for what it knows.
MAY_BE_EARLIER = {"get", "time", "scan", "count", "arrow"}


class WrongAnswerError(AssertionError):
    """A handle said what the log never was."""


class History:
    """One history in a folder of its own."""

    def __init__(self, seed: int, child: Remote, folder: Path) -> None:
        random = Random(seed)
        self.root = folder / "logs"
        self.root.mkdir()
        config = {
            "internal.segment.bytes": random.choice([600, 700, 1000, 100_000]),
            "index.interval.bytes": random.choice([50, 200, 4096]),
            "retention.ms": -1,
            "min.compaction.lag.ms": 0,
            "segment.index.bytes": 4096,
        }
        arguments = (str(self.root), random.choice(["log", "log", "log_dir"]), config)
        child.new(*arguments)
        here = Site(*arguments)
        self.sites: tuple[Any, Any] = (here, child)
        # In one of four the writer is in the other process.
        self.writing = self.sites[random.random() < 0.25]
        self.is_log_dir = arguments[1] == "log_dir"
        self.drawer = Drawer()
        self.writing.begin()
        self.states = [read(self.root / NAME, 0, 0)]
        # Handles by site and name, with the number of the state that each one saw last.
        self.seen: dict[tuple[int, str], int] = {}
        # What followers have given: behind the last record, and behind all that they looked at.
        self.followed: dict[tuple[int, str], tuple[int, int]] = {}
        self.asked = 0
        self.verbs: list[Verb] = []
        for site in range(2):
            for kind in KINDS:
                self.open(site, f"{kind}-before", kind)

    def open(self, site: int, name: str, kind: str) -> None:
        """Open a reader."""
        self.sites[site].open(name, kind)
        self.seen[site, name] = len(self.states) - 1
        self.followed.pop((site, name), None)

    def close(self) -> None:
        """Let go of all."""
        for site in self.sites:
            site.close()

    def step(self, seed: int) -> None:
        """One verb, and questions."""
        random = Random(seed)
        verb = self.drawer.draw(random, self.states[-1])
        self.verbs.append(verb)
        self.writing.do(verb.name, dict(verb.options))
        before = self.states[-1]
        self.states.append(after(verb, before, self.root / NAME))
        self.forget_followers(verb, before)
        if random.random() < 0.4:
            self.open(random.randrange(2), f"later-{random.randrange(2)}", random.choice(KINDS))
        names = [*self.seen, (self.sites.index(self.writing), "writer")]
        for site, name in random.sample(names, min(len(names), 7)):
            for _ in range(random.choice([1, 2, 4])):
                self.question(random, site, name)

    def forget_followers(self, verb: Verb, before: State) -> None:
        """Where a log was cut below what a follower has read, it cannot go on; in another process it may not know."""
        now = self.states[-1]
        lost = (verb.name in {"truncate", "restart"} and verb.options["offset"] < before.end) or now.start > before.start
        cut = min(now.end, written_end(now))
        for (site, name), (behind, looked_at) in list(self.followed.items()):
            if (lost and (looked_at > cut or behind < now.start)) or verb.name in {"reopen", "compact"}:
                self.sites[site].drop(name)
                del self.followed[site, name]

    def question(self, random: Random, site: int, name: str) -> None:
        """Ask a handle, and hold its answer against what it may be."""
        is_told = self.sites[site] is self.writing
        here = self.sites[site]
        if not is_told and random.random() < 0.3:
            here.refresh(name)
            self.seen[site, name] = len(self.states) - 1
        question = self.draw(random, site, name)
        now = self.states[-1]
        if question[0] == "durable":
            question = ("durable", {"end": now.end})
            if name != "writer":
                return
            self.sites[site].do("flush", {})
        got = here.ask(name, *question)
        self.asked += 1
        if question[0] == "pull":
            wanted = now.ask(("scan", {"start": question[1]["start"], "stop": None, "isolation_level": "read_uncommitted"}))
            self.followed[site, name] = (wanted[-1][0] + 1, now.end)
            self.hold(got == wanted, site, name, question, got, [wanted])
            return
        may_be_earlier = not is_told and question[0] in MAY_BE_EARLIER
        since = self.seen[site, name] if may_be_earlier else len(self.states) - 1
        if not is_told and not may_be_earlier:
            self.seen[site, name] = since
        allowed = []
        for state in self.states[since:]:
            # A gap at the end is known to the writer's process alone.
            seen = state if is_told else state._replace(end=written_end(state))
            allowed.append(seen.ask(question))
        is_right = any(self.same(question[0], got, wanted, is_told=is_told) for wanted in allowed)
        self.hold(is_right, site, name, question, got, allowed)

    def same(self, question: str, got: Any, wanted: Any, *, is_told: bool) -> bool:
        """Whether an answer is that one. The high watermark of a log dir is written down now and then, for other processes."""
        late = self.is_log_dir and not is_told
        if question == "fetch" and got[0] != "error" and wanted != OUT_OF_RANGE:
            taken = [batch._replace(records=batch.records) for batch in fetched(got[0])]
            if taken != wanted[0]:
                return False
            high_watermark = got[1] if late else wanted[1]
            # Nothing is stable above what it says of the high watermark.
            return bool(got[1:] == (high_watermark, min(wanted[2], high_watermark), *wanted[3:]))
        if question == "ends" and late and got[0] != "error":
            return bool((*got[:2], *got[3:]) == (*wanted[:2], *wanted[3:]))
        return bool(got == wanted)

    def hold(self, is_right: bool, site: int, name: str, question: Question, got: Any, allowed: list[Any]) -> None:
        """Fail unless the answer is right."""
        if is_right:
            return
        where = ["the test's process", "the child"][site]
        writer = ["the test's process", "the child"][self.sites.index(self.writing)]
        message = (
            f"{name} in {where}, writer in {writer}: {question}\n  said {shown(got)}\n  may say {' or '.join(map(shown, allowed))}"
        )
        raise WrongAnswerError(message)

    def draw(self, random: Random, site: int, name: str) -> Question:
        """A question that fits the log as it is, mostly near its bounds."""
        state = self.states[-1]
        edges = [state.start, state.end, state.start - 1, state.end - 1, state.end + 1, *[one.end for one in self.states[-3:]]]
        edges += [random.randint(state.start, max(state.start, state.end)) for _ in range(3)]
        offsets = [max(0, offset) for offset in edges]
        offset = random.choice(offsets)
        isolation = random.choice(["read_uncommitted", "read_committed"])
        names = [
            "ends",
            "get",
            "get",
            "locate",
            "take",
            "scan",
            "scan",
            "count",
            "arrow",
            "follow",
            "batches",
            "time",
            "splits",
            "fetch",
        ]
        names += ["segments", "pull", "pull", "durable"]
        kind = random.choice(names)
        if kind in {"get", "locate"}:
            return kind, {"offset": offset}
        if kind == "take":
            return kind, {"offsets": [random.choice(offsets) for _ in range(random.choice([1, 3]))]}
        if kind in {"scan", "count", "arrow", "batches"}:
            return kind, self.draw_range(random, kind, offsets, isolation)
        if kind == "follow":
            return kind, {"start": random.choice([None, offset]), "isolation_level": isolation}
        if kind == "time":
            return kind, {"when": random.choice([0, T0 + random.randrange(1100), T0 + 10**9]), "isolation_level": isolation}
        if kind == "splits":
            return kind, {"max_bytes": random.choice([1, 300, 1 << 20])}
        if kind == "fetch":
            return kind, {"offset": offset, "max_bytes": random.choice([1, 500, 1 << 20]), "isolation_level": isolation}
        if kind == "durable":
            return kind, {}
        if kind == "pull" and name != "writer":
            start = self.followed.get((site, name), (state.start, 0))[0]
            rows = state.ask(("scan", {"start": start, "stop": None, "isolation_level": "read_uncommitted"}))
            if rows != OUT_OF_RANGE and rows:
                return kind, {"start": start, "count": len(rows)}
        return ("segments", {}) if kind == "segments" else ("ends", {})

    @staticmethod
    def draw_range(random: Random, kind: str, offsets: list[int], isolation: str) -> dict[str, Any]:
        """The arguments of a scan."""
        start, stop = random.choice([None, *offsets]), random.choice([None, *offsets])
        if start is not None and stop is not None and stop < start:
            start, stop = stop, start
        options: dict[str, Any] = {"start": start, "stop": stop}
        if kind == "batches":
            return options
        options["isolation_level"] = isolation
        for name, value in (("keys", [b"a", b"b"]), ("limit", 2), ("start_timestamp", T0 + 300), ("stop_timestamp", T0 + 700)):
            if random.random() < 0.15:
                options[name] = value
        return options


def shown(answer: Any) -> str:
    """An answer in few words."""
    if isinstance(answer, tuple) and answer and isinstance(answer[0], list) and answer[0] and isinstance(answer[0][0], Batch):
        answer = ([batch[:3] for batch in answer[0]], *answer[1:])
    if isinstance(answer, list) and answer and isinstance(answer[0], tuple) and len(answer[0]) > 3:
        answer = [(one[0], one[3][:12] if isinstance(one[3], bytes) else one[3]) for one in answer]
    return repr(answer)[:600]


def run(seed: int, steps: list[int], child: Remote) -> tuple[int, list[Verb], Exception | None]:
    """Run a history; the number of questions, its verbs, and what went wrong."""
    memory = Path("/dev/shm")  # noqa: S108  # where syncs cost nothing
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    history = History(seed, child, folder)
    failed: Exception | None = None
    try:
        for step in steps:
            history.step(step)
    except Exception as error:  # noqa: BLE001  # told by the caller, with the history made shorter
        failed = error
    finally:
        history.close()
        shutil.rmtree(folder)
    return history.asked, history.verbs, failed


def shortened(seed: int, steps: list[int], child: Remote) -> tuple[list[int], list[Verb], Exception]:
    """As few steps as still fail, and how."""
    verbs, failed = run(seed, steps, child)[1:]
    assert failed is not None, "it does not fail again"
    tries, at = 0, len(steps) - 1
    while at >= 0 and tries < SHORTER_MAX:
        fewer = steps[:at] + steps[at + 1 :]
        shorter, error = run(seed, fewer, child)[1:]
        if error is not None and type(error) is type(failed):
            steps, verbs, failed = fewer[: len(shorter)], shorter, error
        tries += 1
        at = min(at, len(steps)) - 1
    return steps, verbs, failed
