"""A planted mistake, and the tests that are told of by a short name. Knows no process and no clock."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """`old` stands exactly once in `file` and is replaced by `new`. `tests` are arguments of pytest; at least one test must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str
    costs: str = "text"


def of(room: str, *rows: tuple[str, ...]) -> list[Mutation]:
    return [Mutation(name, f"engine/{room}{file}", *rest) for name, file, *rest in rows]


EXACT, LONG = "tests/core/test_exact.py", "tests/forward/test_long_contexts.py"
TARGET, TREE, RULES = "tests/core/test_target.py", "tests/core/test_tree.py", "tests/acceptance/test_acceptance.py"
POLICIES, AUTO, FAST = (
    "tests/policies/test_policies.py",
    "tests/policies/test_auto.py",
    "tests/fast/test_equal_to_reference.py",
)
LIMITS, PROPHET = f"{POLICIES} -k keep_to_their_limits", f"{EXACT} -k always_right"
WINDOWS = "tests/forward/test_families.py"
DRAFTS, CHUNKS = f"{EXACT} -k drafts_own_cache", f"{LONG} -k 'several_chunks and llama'"
BATCHED, SHARES = "tests/forward/test_batched_forward.py", "tests/rounds/test_batched_rounds.py -k reckons"
BLOCK = "tests/drafters/test_published_dflash.py -k block_guesses"
BOUND = "tests/core/test_constraint.py"
BLOCKS = (
    "tests/acceptance/test_blocks.py "
    "-k 'never_accepts_less or accepts_more or best_chain or (awkward and (block or traversal or gbv))'"
)
AHEAD = "tests/policies/test_ahead.py"
STUDY = "tests/lab/test_study.py"
REMOTE_CLOCK = "tests/remote/test_remote_clock.py"
REMOTE, RECORDED = "tests/remote/test_remote_lane.py", "tests/record/test_race_file.py -k remote"
