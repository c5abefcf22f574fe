"""The overhead outside the forwards, told by part."""

from engine.lab.bench import parts
from helpers.commands import SMALL, told


def test_the_overhead_is_told_by_part_and_leaves_no_clock_behind(capsys, embedded):
    _, figures = told(capsys, "bench --by part", *SMALL, "--systems", "tree", "--prompts", "1", "--tokens", "12")
    found = figures["ms"]["tree"]
    assert all(found[part] > 0 for part in parts.PARTS) and found["target forward"] > found["rule"]
