"""Every part that a visitor can mix a system from is explained in one sentence."""

import pytest

from engine.acceptance import ACCEPTANCES
from engine.drafters import DRAFTERS
from engine.policies import POLICIES

REGISTRIES = {"drafter": DRAFTERS, "policy": POLICIES, "acceptance": ACCEPTANCES}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in REGISTRIES.items() for name in names])
def test_every_part_has_a_sentence(kind, name):
    words = REGISTRIES[kind][name].about
    assert 15 < len(words) <= 90 and words[0].isupper() and words.endswith(".") and "_" not in words
