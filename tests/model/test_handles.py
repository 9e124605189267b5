"""Row 28. Handles of every kind beside a plain model: after every verb each one answers from the log as it is, or was since it last looked."""

from __future__ import annotations

import pytest
from handle_histories import STEPS, WrongAnswerError, run, shortened
from handles import remote
from rows import row

HISTORIES = 300


@pytest.mark.slow
def test_handles_beside_a_model() -> None:
    """No answer from the past, none that is a mixture, no false error."""
    with row(28, "handles beside a model", "histories", HISTORIES) as part, remote() as child:
        asked = 0
        for number in range(part.floor):
            seed = part.random.randrange(1 << 40)
            steps = [part.random.randrange(1 << 40) for _ in range(STEPS)]
            questions, _, failed = run(seed, steps, child)
            if failed is not None:
                _, verbs, failed = shortened(seed, steps, child, failed)
                told = "\n".join(f"  {verb.name} {verb.options}" for verb in verbs)
                message = (
                    f"history {number} of OFFSETLOG_SEED={part.seed}, as short as it fails:\n{told}\n{type(failed).__name__}: {failed}"
                )
                raise WrongAnswerError(message) from failed
            asked += questions
            part.count()
        print(f"{part.cases} histories, {asked} questions")
