"""Histories: verbs one after the other, each followed by questions to handles of every kind. Each step has a seed of its own, so that a
history that fails can be made shorter by leaving steps out."""

from __future__ import annotations

import shutil
import tempfile
import threading
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from codec import Batch
from followers import ISOLATIONS, Followers
from handles import KINDS, NAME, Remote, Site
from questions import drawn
from verbs import BESIDE_A_READER, Drawer, Verb, after, appending, as_written, between, read
from window import Window

from model import OUT_OF_RANGE, Question, fetched

STEPS = 12
# Of these a child asks while they are done.
BURST = 4
SHORTER_MAX = 60
# For these a handle in another process need not look when they ask for what it knows.
MAY_BE_EARLIER = {"get", "time", "scan", "count", "arrow", "log_dir_scan", "log_dir_time"}
# The writer alone, and those of a log dir, are asked for these.
OF_THE_WRITER = {"durable", "recovery_point", "epoch_end"}
OF_A_LOG_DIR = {"log_dir_scan", "log_dir_time"}


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
            **appending(random),
        }
        arguments = (str(self.root), random.choice(["log", "log", "log_dir"]), config)
        child.new(*arguments)
        here = Site(*arguments)
        self.sites: tuple[Any, Any] = (here, child)
        # In one of four the writer is in the other process.
        self.writing = self.sites[random.random() < 0.25]
        self.is_log_dir = arguments[1] == "log_dir"
        self.drawer = Drawer(config)
        self.writing.begin()
        self.states = [read(self.root / NAME, 0, 0)]
        # Handles by site and name, with the number of the state that each one saw last.
        self.seen: dict[tuple[int, str], int] = {}
        self.kinds: dict[tuple[int, str], str] = {}
        self.followers = Followers()
        # Scans under way: the state in which each began, its options, what it returned, and where it ends.
        self.paused: dict[tuple[int, str], tuple[int, dict[str, Any], list[Any], int]] = {}
        # Handles of a topic that was deleted and made anew: they may also say that it is gone.
        self.of_the_deleted: set[tuple[int, str]] = set()
        self.asked = 0
        self.verbs: list[Verb] = []
        for site in range(2):
            for kind in KINDS:
                self.open(site, f"{kind}-before", kind)

    def open(self, site: int, name: str, kind: str) -> None:
        """Open a reader."""
        self.sites[site].open(name, kind)
        self.kinds[site, name] = kind
        self.seen[site, name] = len(self.states) - 1
        self.followers.forget(site, name)
        self.paused.pop((site, name), None)
        self.of_the_deleted.discard((site, name))

    def close(self) -> None:
        """Let go of all."""
        for site in self.sites:
            site.close()

    def step(self, seed: int) -> None:
        """One verb, and questions; or several, with questions from the other process meanwhile."""
        random = Random(seed)
        if random.random() < 0.15:
            self.burst(random)
        else:
            self.change(random)
        if random.random() < 0.4:
            self.open(random.randrange(2), f"later-{random.randrange(2)}", random.choice(KINDS))
        names = [*self.seen, (self.sites.index(self.writing), "writer")]
        for site, name in random.sample(names, min(len(names), 7)):
            for _ in range(random.choice([1, 2, 4])):
                self.question(random, site, name)

    def change(self, random: Random, only: set[str] | None = None) -> None:
        """One verb."""
        before = self.states[-1]
        verb = self.drawer.draw(random, before, is_log_dir=self.is_log_dir, only=only)
        self.verbs.append(verb)
        self.writing.do(verb.name, dict(verb.options))
        now = after(verb, before, self.root / NAME)
        if verb.name == "move":
            # Before a segment begins, what was there is durable; of what was moved as much as the writer says.
            durable = self.writing.ask("writer", "recovery_point", {})[0]
            began = before.end if now.segments[-1][0] > before.segments[-1][0] else 0
            assert max(before.durable, began) <= durable <= now.end, (durable, before, now)
            now = now._replace(durable=durable)
        if verb.name in {"kill", "compact"}:
            # A checkpoint kept it from before, or compaction synced the segments below the active one: never more than was synced.
            durable = self.writing.ask("writer", "recovery_point", {})[0]
            recovers = verb.options.get("recovers", False)
            most = now.end if recovers else max(before.durable, now.start if verb.name == "kill" else now.segments[-1][0])
            if verb.name == "compact" and before.durable < before.segments[-1][0]:
                # What was moved behind it is not known to be durable: compaction syncs all.
                most = now.end
            assert durable <= most, (durable, most, before)
            assert verb.name == "kill" or durable >= before.durable, (durable, before)
            now = now._replace(durable=durable)
        self.states.append(now)
        if verb.name in {"reopen", "publish", "kill", "recreate"}:
            self.followers.forget(self.sites.index(self.writing), "writer")
        if verb.name == "recreate":
            self.paused.clear()
            self.of_the_deleted.update(self.seen)

    def burst(self, random: Random) -> None:
        """Several verbs while the other process asks: each answer is of one state that the log had since the handle last looked."""
        site = 1 - self.sites.index(self.writing)
        names = [name for at, name in self.seen if at == site and (at, name) not in self.of_the_deleted]
        if not names:
            return
        name = random.choice(names)
        questions = [self.draw_of_one_state(random, site, name) for _ in range(30)]
        first = len(self.states) - 1
        answers: list[tuple[int, int, Question, Any]] = []
        failures: list[BaseException] = []
        ended = threading.Event()

        def ask() -> None:
            while not ended.is_set() and len(answers) < 200:
                question = questions[len(answers) % len(questions)]
                began = len(self.states) - 1
                try:
                    got = self.sites[site].ask(name, *question)
                except Exception as error:  # noqa: BLE001  # told by the thread that waits
                    failures.append(error)
                    return
                answers.append((began, len(self.states), question, got))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            for _ in range(BURST):
                self.change(random, BESIDE_A_READER)
        finally:
            ended.set()
            asking.join()
        if failures:
            raise failures[0]
        since = self.seen[site, name]
        # Each state with those that lead to it.
        steps = [[self.states[first]]]
        steps += [between(self.verbs[at], self.states[at], self.states[at + 1]) for at in range(first, len(self.states) - 1)]
        recreated = min(
            [at for at in range(first, len(self.states) - 1) if self.verbs[at].name == "recreate"], default=len(self.states)
        )
        for began, finished, question, got in answers:
            earliest = first if question[0] in MAY_BE_EARLIER else began
            chain = [state for states in steps[earliest - first : finished - first + 1] for state in states]
            if earliest == first:
                chain = self.states[since:first] + chain
            window = Window([as_written(state) for state in chain])
            is_right = window.may_say(question, got, partial(self.same, is_told=False))
            # A topic that is deleted is gone until it is made again.
            is_right = is_right or (recreated < finished and got[:2] == ("error", "FileNotFoundError"))
            self.asked += 1
            self.hold(is_right, site, name, question, got, [state.ask(question) for state in window.states])
        self.paused = {key: held for key, held in self.paused.items() if key != (site, name)}

    def draw_of_one_state(self, random: Random, site: int, name: str) -> Question:
        """A question that can be asked while the log changes."""
        while True:
            question = self.draw(random, site, name)
            kind = question[0]
            if kind in {"get", "locate", "take", "scan", "count", "arrow", "batches", "time", "splits", "fetch"}:
                if kind == "arrow":
                    question[1]["columns"] = ["offset", "timestamp", "key", "value"]
                return question
            if kind == "ends":
                names = ["log_start_offset", "log_end_offset", "last_stable_offset", "leader_epoch"]
                return ("property", {"which": random.choice(names)})

    def question(self, random: Random, site: int, name: str) -> None:
        """Ask a handle, and hold its answer against what it may be."""
        is_told = self.sites[site] is self.writing
        here = self.sites[site]
        if not is_told and random.random() < 0.3:
            here.refresh(name)
            self.seen[site, name] = len(self.states) - 1
        question = self.draw(random, site, name)
        if question[0] == "go_on":
            self.go_on(site, name)
            return
        got = here.ask(name, *question)
        self.asked += 1
        if question[0] == "pause":
            self.begin_to_read(site, name, question[1], got, is_told=is_told)
            return
        if question[0] == "pull":
            key = site, name, question[1]["isolation_level"]
            is_right, allowed = self.followers.is_right(key, question[1], got, self.states, self.verbs, is_told=is_told)
            self.hold(is_right, site, name, question, got, [allowed])
            return
        may_be_earlier = not is_told and question[0] in MAY_BE_EARLIER
        since = self.seen[site, name] if may_be_earlier else len(self.states) - 1
        if not is_told and not may_be_earlier:
            self.seen[site, name] = since
        allowed = []
        for state in self.states[since:]:
            # A gap at the end is known to the writer's process alone.
            seen = state if is_told else as_written(state)
            allowed.append(seen.ask(question))
        is_right = any(self.same(question[0], got, wanted, is_told=is_told) for wanted in allowed)
        is_right = is_right or ((site, name) in self.of_the_deleted and got[:1] == ("error",))
        self.hold(is_right, site, name, question, got, allowed)

    def begin_to_read(self, site: int, name: str, options: dict[str, Any], got: Any, *, is_told: bool) -> None:
        """A scan that returned its first records, and goes on later."""
        count = options.pop("count")
        states = self.states[len(self.states) - 1 if is_told else self.seen[site, name] :]
        if not is_told:
            states = [as_written(state) for state in states]
        answers = [state.ask(("scan", options)) for state in states]
        if (site, name) in self.of_the_deleted or got in (OUT_OF_RANGE, ([], OUT_OF_RANGE)):
            self.hold(OUT_OF_RANGE in answers or (site, name) in self.of_the_deleted, site, name, ("pause", options), got, answers)
            return
        self.hold(got[0] in [answer[:count] for answer in answers], site, name, ("pause", options), got, answers)
        self.paused[site, name] = (len(self.states) - len(states), options, got[0], max(state.end for state in states))

    def go_on(self, site: int, name: str) -> None:
        """The rest of that scan: each record in order, once, and there at some time since; nothing left out that was there all the time."""
        began, options, rows, stop = self.paused.pop((site, name))
        more, error = self.sites[site].ask(name, "go_on", {})
        self.asked += 1
        got = (rows + more, error)
        window = Window(self.states[began:])
        answers = [state.ask(("scan", {**options, "stop": stop})) for state in window.states]
        self.hold(window.may_have_read(options, got, stop), site, name, ("go_on", options), got[0], answers)

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
        names += ["segments", "pull", "pull", "durable", "recovery_point", "epoch_end", "over", "log_dir_scan", "log_dir_time"]
        names += ["verify"]
        names += ["go_on"] * 6 if (site, name) in self.paused else ["pause"]
        kind = random.choice(names)
        if (kind in OF_THE_WRITER and name != "writer") or (kind in OF_A_LOG_DIR and not self.has_log_dir(site, name)):
            kind = "ends"
        if kind == "pull":
            key = site, name, random.choice(ISOLATIONS)
            is_told = self.sites[site] is self.writing
            options = self.followers.draw(random, key, self.states, self.verbs, is_told=is_told)
            return ("ends", {}) if options is None else (kind, options)
        return kind, drawn(kind, random, state, offsets)

    def has_log_dir(self, site: int, name: str) -> bool:
        """Whether a handle is of a log dir."""
        return self.is_log_dir if name == "writer" else self.kinds[site, name] == "log_dir"


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


def shortened(seed: int, steps: list[int], child: Remote, first: Exception) -> tuple[list[int], list[Verb], Exception]:
    """As few steps as still fail, and how; all of them where it was a matter of the moment, so that it does not fail again."""
    verbs, failed = run(seed, steps, child)[1:]
    if failed is None:
        return steps, verbs, first
    tries, at = 0, len(steps) - 1
    while at >= 0 and tries < SHORTER_MAX:
        fewer = steps[:at] + steps[at + 1 :]
        shorter, error = run(seed, fewer, child)[1:]
        if error is not None and type(error) is type(failed):
            steps, verbs, failed = fewer[: len(shorter)], shorter, error
        tries += 1
        at = min(at, len(steps)) - 1
    return steps, verbs, failed
