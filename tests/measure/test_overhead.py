"""The overhead outside the forwards, told by part."""

import json

from engine.measure import overhead
from helpers.commands import printed


def test_the_overhead_is_told_by_part_and_leaves_no_clock_behind(capsys, embedded):
    lines = printed(capsys, overhead.main, "--systems", "tree", "--prompts", "1", "--tokens", "12")
    found = json.loads(lines[-1])["ms"]["tree"]
    assert all(found[part] > 0 for part in overhead.PARTS) and found["target forward"] > found["rule"]
