"""The drift: a frozen drafter beside one that adapts."""

import json

from engine.measure import drift
from helpers.commands import printed


def test_the_drift_compares_a_frozen_with_an_adapting_drafter(capsys, embedded):
    arguments = ("--stories", "1", "--code", "2", "--tokens", "40", "--window", "1")
    figures = json.loads(printed(capsys, drift.main, *arguments)[-1])
    assert figures["domains"].keys() == {"stories", "code"} and figures["choices"] >= 1
    assert all(each["tau frozen"] >= 1 and each["tau adapting"] >= 1 for each in figures["domains"].values())
