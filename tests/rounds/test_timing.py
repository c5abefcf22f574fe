"""What forwards cost here: measured once, in every size, and drafts by their forwards."""

from engine.drafters import DRAFTERS
from engine.rounds.timing import LEVELS, ROWS, costs_of, draft_ms
from helpers.pairs import tiny_pair


def test_the_machine_is_measured_once_and_in_every_size():
    pair = tiny_pair()
    found = costs_of(pair, "model")
    assert tuple(found.verify_ms) == ROWS and all(ms > 0 for ms in found.verify_ms.values())
    assert found.first_ms > 0 and found.level_ms > 0
    assert costs_of(pair, "model") == found and costs_of(pair, "none").level_ms < found.level_ms
    apart = {
        "dflash",
        "dspark",
    }  # they read hidden states of their own choice, so their target's forwards are timed apart
    for name in set(DRAFTERS) - apart:
        assert (
            costs_of(pair, name).verify_ms
            == costs_of(pair, "eagle" if DRAFTERS[name](pair, 99).reads_features else "model").verify_ms
        )


def test_what_is_timed_of_best_are_draft_forwards():
    """One for every level; copies cost none, and drafting would look free."""
    pair = tiny_pair()
    drafters = []
    kept = DRAFTERS["best"].__init__
    try:
        DRAFTERS["best"].__init__ = lambda self, *args: drafters.append(self) or kept(self, *args)
        draft_ms(pair, "best", repeats=5)
    finally:
        DRAFTERS["best"].__init__ = kept
    assert drafters[0].forwards == 6 * (1 + 1 + LEVELS)
