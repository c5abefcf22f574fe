"""Every part that a visitor can mix a system from is explained in one sentence. What a drafter must know of is little."""

import pytest

from engine.acceptance import ACCEPTANCES
from engine.contracts import Drafter
from engine.drafters import DRAFTERS
from engine.policies import POLICIES

REGISTRIES = {"drafter": DRAFTERS, "policy": POLICIES, "acceptance": ACCEPTANCES}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in REGISTRIES.items() for name in names])
def test_every_part_has_a_sentence(kind, name):
    words = REGISTRIES[kind][name].about
    assert 15 < len(words) <= 90 and words[0].isupper() and words.endswith(".") and "_" not in words


def test_a_drafters_contract_has_fewer_than_twelve_methods_and_flags():
    """Beside the words that describe it, and what a lane keeps on it."""
    declared = {name for name in vars(Drafter) if not name.startswith("_")} | {*Drafter.__annotations__}
    words = {"guess_origin", "required_resource", "no_guess_reason"}
    kept = {"draft_forward_count", "vocab", "stop_ids", "score_hits"}
    assert words | kept < declared and len(declared - words - kept) < 12, sorted(declared - words - kept)
