"""The fast versions: every `x_compiled.py`, `x_eight_bit.py` and `x_gpu.py` says which `x.py` it computes, and computes that."""

import re
from pathlib import Path

import pytest

from helpers import equal_forwards, equal_nets, equal_trees
from helpers.paths import ROOT

CASES = equal_nets.CASES | equal_forwards.CASES | equal_trees.CASES
ENGINE, HERE = ROOT / "engine", Path(__file__).relative_to(ROOT).as_posix()
KINDS = "compiled", "eight_bit", "gpu"
# Drafters whose trees on a device are compared at one temperature, unless all cases are asked for
GREEDY = re.compile(r"policies\.shared\.growing_gpu: (?!tree,|dspark,).*T=0\.0")
FAST = {
    ".".join(path.relative_to(ENGINE).with_suffix("").parts): path
    for kind in KINDS
    for path in sorted(ENGINE.rglob(f"*_{kind}.py"))
}


@pytest.mark.usefixtures("small_capacities")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=f"{name}: {variant}" if variant else name,
            marks=pytest.mark.exhaustive if GREEDY.fullmatch(f"{name}: {variant}") else (),
        )
        for name, variants in CASES.items()
        for variant, case in variants.items()
    ],
)
def test_a_fast_version_is_its_reference(case):
    compared = 0
    for each in case():
        each.check()
        compared += 1
    assert compared


def test_every_fast_version_has_a_case_and_every_case_a_fast_version():
    assert CASES.keys() == FAST.keys() and all(CASES.values())


@pytest.mark.parametrize("name", FAST)
def test_a_fast_version_names_its_reference_and_the_test_that_holds_them_equal(name):
    """The first line names the module `x` of `x_compiled` or `x_gpu`, which exists, and the family above."""
    line = FAST[name].read_text(encoding="utf-8").splitlines()[0]
    match = re.match(r'"""`engine\.([\w.]+)`.*; held equal by (\S+)\[([\w.]+)\]\.("""|$)', line)
    assert match, line
    reference, test, case, _ = match.groups()
    assert (ENGINE / Path(*reference.split("."))).with_suffix(".py").exists(), reference
    assert FAST[name].stem in [f"{reference.split('.')[-1]}_{kind}" for kind in KINDS]
    assert (test, case) == (HERE, name)
