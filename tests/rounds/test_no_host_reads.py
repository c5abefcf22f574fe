"""GPU code without a GPU: no device round, bucket or session reads a number back from the device or mixes devices."""

import subprocess
import sys

import pytest
import torch.utils.backend_registration as registration

from helpers.families import WINDOWED
from helpers.paths import OF_TESTS


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(registration, "_setup_privateuseone_for_python_backend"), reason="this torch makes no device in Python"
)
def test_what_a_graph_holds_never_asks_the_host():
    ran = subprocess.run(
        [sys.executable, "-m", "helpers.shape_only_device"],
        env=OF_TESTS,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    passed = [line.removeprefix("passed: ") for line in ran.stdout.splitlines() if line.startswith("passed: ")]
    assert (
        sum(each.startswith("round") for each in passed) == 12 + len(WINDOWED)
        and sum(each.startswith("session") for each in passed) == 2
    )
    assert {"reading", "choosing", "mixing"} <= set(passed)
