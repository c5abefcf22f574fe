"""The drift: a frozen drafter beside one that adapts."""

from helpers.commands import SMALL, told


def test_the_drift_compares_a_frozen_with_an_adapting_drafter(capsys, embedded):
    arguments = ("--stories", "1", "--code", "2", "--tokens", "40", "--window", "1")
    figures = told(capsys, "bench --by change", *SMALL, *arguments)[1]
    assert figures["domains"].keys() == {"stories", "code"} and figures["choices"] >= 1
    assert all(each["tau frozen"] >= 1 and each["tau adapting"] >= 1 for each in figures["domains"].values())
