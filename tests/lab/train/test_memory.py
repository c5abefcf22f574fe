"""Memory of a parallel drafter's training by segments."""

from helpers.commands import told


def test_more_segments_hold_less_memory(capsys):
    arguments = ("--length", "64", "--segments", "1", "2", "4")
    figures = told(capsys, "bench --by segments", *arguments)[1]
    peaks = list(figures["mib"].values())
    assert peaks == sorted(peaks, reverse=True) and peaks[-1] < 0.8 * peaks[0]
