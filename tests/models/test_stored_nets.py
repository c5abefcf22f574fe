"""Stored nets: what a visitor is told of a drafter that does not load names its folder, and not where on the server that lies."""

import pytest

from engine.nets import LazyNets


def broken(folder, embedding, head):
    raise ValueError(f"{folder} lacks the tensor x, and {folder}/config.json is wrong.")


def test_a_drafter_that_does_not_load_is_named_by_its_folder_alone(tmp_path):
    nets = LazyNets({"eagle": (broken, tmp_path / "eagle-3")}, None, None)
    with pytest.raises(ValueError, match=r"^eagle-3 lacks the tensor x, and eagle-3/config\.json is wrong\.$"):
        nets["eagle"]
