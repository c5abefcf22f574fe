"""Mistakes planted in what the page's screens and the laboratory publish. See `mutations.table`."""

from tests.mutations.figures import BENCH, REPEATED, F
from tests.mutations.mutation import of

CURVES, DOCTOR = "tests/lab/test_pays_curves.py", "tests/lab/test_doctor.py"
SWEEP, OWN = "tests/page/screens/test_sweep.py", "tests/page/screens/test_own_prompts.py"
TURNS = "tests/page/screens/test_turns.py"

PUBLISHED = [
    *of(
        "lab/",
        (
            "the limit forgets drafting",
            "bench/command.py",
            ' + seconds_per_round(mine, "draft") / one)',
            ")",
            f"{BENCH} -k by_hand",
            F,
        ),
        ("the quickest run counts", "bench/command.py", "[len(traces) // 2]", "[0]", f"{BENCH} -k median_time", F),
        (
            "the quickest batch counts",
            "pays/batch.py",
            "[len(some[lane]) // 2]",
            "[-1]",
            f"{CURVES} -k takes_medians",
            F,
        ),
        (
            "plain decoding's batch is never disturbed",
            "pays/batch.py",
            "disturbed(BASELINE, plain, some[BASELINE]) or ",
            "",
            f"{CURVES} -k median_run",
            F,
        ),
        (
            "a round is a sequence's",
            "pays/batch.py",
            "if number <= last else",
            "if True else",
            f"{CURVES} -k batchs_rounds",
            F,
        ),
        (
            "a disturbed context is not told",
            "pays/context.py",
            "sum(map(bool, raced.disturbed))",
            "0",
            f"{CURVES} -k context_that_was_disturbed",
            F,
        ),
    ),
    *of(
        "lab/pays/",
        (
            "scores without their temperature",
            "doctor.py",
            " * (sampling.temperature or 1)",
            "",
            f"{DOCTOR} -k by_hand",
            F,
        ),
        (
            "noise of the position before",
            "doctor.py",
            "logits, [len(ids)])",
            "logits, [len(ids) - 1])",
            f"{DOCTOR} -k by_hand",
            F,
        ),
    ),
    *of(
        "page/screens/",
        (
            "one place further in line",
            "turns.py",
            "you are number {ahead + 1} in",
            "you are number {ahead + 2} in",
            TURNS,
            F,
        ),
        (
            "nobody ahead counts",
            "turns.py",
            "return left + races + max(0, ahead)",
            "return left + races + 0 * max(0, ahead)",
            TURNS,
            F,
        ),
        ("what was used is never forgotten", "turns.py", "0.5 ** ((", "1.0 ** ((", TURNS, F),
        (
            "a disturbed cell is not told",
            "sweep.py",
            '"disturbed": disturbed}',
            '"disturbed": ""}',
            f"{SWEEP} -k once_more",
            F,
        ),
        (
            "disturbed cells are not counted",
            "sweep.py",
            "sum(map(is_disturbed, measured))",
            "0",
            f"{SWEEP} -k once_more",
            F,
        ),
        (
            "a disturbed cell is the best",
            "sweep.py",
            "if not is_disturbed(cell)] or",
            "] or",
            f"{SWEEP} -k recommended_only",
            F,
        ),
        (
            "a disturbed row is not told",
            "own_prompts.py",
            '"disturbed": result["disturbed"]',
            '"disturbed": ""',
            f"{OWN} -k once_more",
            F,
        ),
        (
            "totals of speeds",
            "own_prompts.py",
            "rates[0] / rates[1] if raced",
            "rates[1] / rates[0] if raced",
            f"{OWN} -k totals",
            F,
        ),
        (
            "never alone",
            "device.py",
            "len(self.line.everyone) <= 1",
            "len(self.line.everyone) <= 2",
            f"{REPEATED} -k loneliness",
            F,
        ),
    ),
]
