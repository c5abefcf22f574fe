"""The house: which room may import which, what no room may load, and how large files and folders may grow.

The table is checked against the sources both ways; at the end made-up sources show that the checker sees what it is there to see.
"""

import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from helpers.imports import (
    classes_of,
    cycle,
    differences,
    draws,
    imported,
    module_arrows,
    modules_of,
    room_arrows,
    room_of,
    within,
)
from helpers.paths import ROOT

# Room -> rooms that it imports, from the top of the house to the bottom. Whoever needs another arrow writes it here, and says why in
# the commit.
ARROWS = {
    "engine": "",
    "__main__": "shell measure",
    "shell": "measure models",
    "page": "",
    "page.web": "page.screens page.views measure race systems breaks models remote record",  # what an error says of memory
    "page.screens": (
        "page.views measure race systems breaks decode rounds policies drafters acceptance contracts target models forward "
        "remote record sampling tree"
    ),
    "page.views": "record",
    "lab.gpu": "lab.bench lab.train measure race rounds target models nets forward sampling tree",
    "lab.bench": "lab.train measure race systems rounds target models forward kernels record tree",
    "lab.pays": "measure race systems drafters models nets forward remote record sampling tree",
    "lab.study": "measure race breaks systems acceptance models record sampling",
    "lab": "measure race systems decode rounds drafters acceptance target models kernels record sampling tree",
    "lab.train": "measure race models nets forward record sampling",
    "measure": "plugins race batch systems decode rounds models nets forward kernels remote record sampling tree",
    "custom_generate": "race systems decode models forward sampling tree",
    "race": "systems decode contracts models remote record sampling tree",
    "batch": "systems decode rounds contracts target models forward record sampling tree",
    "systems": "named_systems mixes breaks rounds policies drafters acceptance contracts target models record sampling",
    "plugins": "policies drafters acceptance contracts",
    "named_systems": "",
    "mixes": "policies drafters acceptance contracts",
    "breaks": "rounds target tree",
    "decode": "contracts",
    "rounds": "policies drafters contracts target models forward kernels record sampling tree",
    "policies": "contracts forward kernels record sampling tree",
    "drafters": "contracts models nets forward kernels tree",
    "acceptance": "contracts kernels sampling tree",
    "contracts": "models forward kernels record sampling tree",  # a drafter may be shown the cache of the target
    "target": "forward tree",
    "models": "nets forward kernels remote record",  # how many cores are used
    "nets": "forward kernels",
    "forward": "kernels record",  # which errors mean that memory ran out
    "remote": "record",
    "sampling": "kernels",
    "tree": "kernels",
    "kernels": "",
    "record": "",
}
TABLE = {room: others.split() for room, others in ARROWS.items()}
SOURCES = modules_of(ROOT, "engine")

LONGEST_FILE, MOST_FILES = 350, 20
CODE = {".py", ".js", ".css", ".html"}


def code_files() -> list[Path]:
    """Files that people write, below the folders that hold code; `__init__.py` included, compiled ones not."""
    inside = [path for folder in ("engine", "tests", "assets/page") for path in (ROOT / folder).rglob("*")]
    return [path for path in [ROOT / "app.py", *inside] if path.suffix in CODE]


# A copy of the process for every module that is asked for, each with what the process had imported before
COPIES = """
import importlib, os, pkgutil, sys

for each in sys.argv[1].split():
    importlib.import_module(each)
for line in sys.stdin:
    if os.fork():
        _, status = os.wait()
        if status:
            print(flush=True)
        continue
    module = importlib.import_module(line.strip())
    for found in pkgutil.iter_modules(getattr(module, "__path__", [])):
        importlib.import_module(f"{module.__name__}.{found.name}")
    print(*sys.modules, flush=True)
    os._exit(0)
"""


TENSORS = "torch transformers.modeling_utils numba"  # seconds that need not be spent for every module


@pytest.fixture(scope="module")
def loaded():
    """Returns every module that a process holds after importing one and, of a folder, all modules in it. It held `before` alone."""
    processes: dict[str, subprocess.Popen] = {}

    @cache
    def of(module: str, before: str = "") -> set[str]:
        if before not in processes:
            command = [sys.executable, "-c", COPIES, before]
            processes[before] = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        process = processes[before]
        process.stdin.write(f"{module}\n")
        process.stdin.flush()
        return set(process.stdout.readline().split())

    yield of
    for process in processes.values():
        process.communicate()


# ---- arrows


def test_every_arrow_between_rooms_is_in_the_table_and_every_entry_is_used():
    assert differences(room_arrows(module_arrows(SOURCES)), TABLE) == []


def test_rooms_import_one_another_in_one_direction():
    assert cycle(room_arrows(module_arrows(SOURCES))) == [] and cycle(TABLE) == []


def test_the_table_reads_from_top_to_bottom():
    order = list(TABLE)
    assert [room for room, others in TABLE.items() for other in others if order.index(other) < order.index(room)] == []


def test_modules_import_one_another_in_one_direction():
    assert cycle(module_arrows(SOURCES, types=False)) == []


def test_gradio_is_imported_by_the_room_web_alone():
    assert {room_of(module) for module in within(SOURCES, "gradio")} == {"page.web"}


def test_nothing_in_the_engine_imports_the_app():
    assert within(SOURCES, "app") == set()


# ---- what is loaded


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("engine.record.trace", "torch"),
        ("engine.record.race_file", "torch"),
        ("engine.record", "torch"),
        ("engine.record", "gradio"),
        ("engine.record", "pydantic"),
        ("engine.page.web.front", "torch"),
        ("engine.page.web.front", "gradio"),
        ("engine.page.web.front", "numpy"),
        ("engine.page.views.standalone", "plotly"),
        ("app", "numpy"),
        ("app", "pydantic"),
        ("app", "gradio"),
        ("app", "numba"),
        ("app", "engine.race"),
        ("engine.page.screens.device", "torch"),
        ("engine.page.views", "torch"),
        ("engine.page.views", "gradio"),
    ],
)
def test_a_module_does_not_import(module, forbidden, loaded):
    assert module in loaded(module) and forbidden not in loaded(module)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("engine.page.screens", "gradio"),  # races among it
        ("engine.lab.bench.command", "gradio"),
        ("engine.forward.runner", "engine.kernels.growing_compiled"),
        ("engine.policies.chain", "engine.drafters"),
    ],
)
def test_a_module_that_computes_does_not_import(module, forbidden, loaded):
    held = loaded(module, TENSORS)
    assert module in held and not [each for each in held if each == forbidden or each.startswith(f"{forbidden}.")]


def test_views_need_neither_torch_nor_gradio(loaded):
    assert not {"torch", "gradio", "plotly", "numpy"} & loaded("engine.page.views.wire")


def test_randomness_comes_from_sampling_alone():
    for path in (ROOT / "engine").rglob("*.py"):
        if path.name != "sampling.py" and "train" not in path.parts:
            assert draws(path.read_text(encoding="utf-8")) == set(), path


# ---- names and sizes


def test_no_two_classes_share_a_name():
    classes = Counter(name for source in SOURCES.values() for name in classes_of(source))
    assert {name: count for name, count in classes.items() if count > 1} == {}


def test_no_file_is_longer_than_can_be_held_in_mind():
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in code_files()}
    assert {str(path.relative_to(ROOT)): count for path, count in lines.items() if count > LONGEST_FILE} == {}


def test_the_whole_stays_within_its_budget_of_lines():
    """Five in a hundred above what was there when it was last cut. What needs more cuts or merges first."""
    python = [*(ROOT / "engine").rglob("*.py"), ROOT / "app.py"]
    page = [path for path in (ROOT / "assets" / "page").rglob("*") if path.suffix in (".js", ".css")]
    counts = [sum(len(path.read_text("utf-8").splitlines()) for path in each) for each in (python, page)]
    assert counts[0] <= 40_000 and counts[1] <= 12_160, counts


def test_no_room_holds_more_files_than_can_be_overseen():
    folders = [path.parent for path in code_files()]
    assert {str(each.relative_to(ROOT)) for each in folders if folders.count(each) > MOST_FILES} == set()


# ---- tests import no tests, and the checker sees what it should


def test_no_test_imports_a_test():
    for path in (ROOT / "tests").rglob("*.py"):
        names = {name for module, _ in imported(path.read_text(encoding="utf-8")) for name in module.split(".")}
        assert not [name for name in names if name == "conftest" or name.startswith("test_")], path


MADE_UP = {
    "engine": "",
    "engine.high": "from engine.low import deep\nfrom engine.low.deep import number\nimport torch.nn",
    "engine.low": "",
    "engine.low.deep": "import numpy",
}


def test_a_made_up_house_has_the_arrows_that_are_in_its_sources():
    arrows = module_arrows(MADE_UP)
    assert arrows == {
        "engine": set(),
        "engine.high": {"engine.low.deep"},
        "engine.low": set(),
        "engine.low.deep": set(),
    }
    assert room_arrows(arrows) == {"engine": set(), "high": {"low"}, "low": set()}
    assert within(MADE_UP, "torch") == {"engine.high"} and within(MADE_UP, "tor") == set()


@pytest.mark.parametrize(
    "line",
    [
        "import engine.high",
        "from engine import high",
        "from engine.high import anything",
        "def later():\n    from engine.high import anything",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from engine.high import Anything",
    ],
)
def test_a_forbidden_arrow_is_seen_however_it_is_written(line):
    rooms = room_arrows(module_arrows({**MADE_UP, "engine.low.deep": line}))
    assert "low imports high, which the table does not allow." in differences(rooms, {"high": ["low"]})
    assert cycle(rooms) == ["high", "low", "high"]


def test_an_entry_of_the_table_that_nothing_uses_is_seen():
    rooms = room_arrows(module_arrows(MADE_UP))
    assert differences(rooms, {"high": ["low"]}) == []
    assert differences(rooms, {"high": ["low", "attic"]}) == ["The table lets high import attic, which it does not."]
    assert differences(rooms, {}) == ["high imports low, which the table does not allow."]


def test_modules_that_load_one_another_are_seen_and_a_type_alone_is_no_load():
    two = {"engine.a.one": "import engine.a.two", "engine.a.two": "def later():\n    from engine.a import one"}
    assert cycle(module_arrows(two, types=False)) == ["engine.a.one", "engine.a.two", "engine.a.one"]
    two["engine.a.two"] = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import engine.a.one"
    assert cycle(module_arrows(two, types=False)) == [] and cycle(module_arrows(two)) != []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("x = torch.randn(\n    3)", "torch.randn"),
        ("x = torch.randint_like(y, 3)", "torch.randint_like"),
        ("x = np.random.default_rng()", "np.random"),
        ("x = random.choice(y)", "random.choice"),
        ("from random import choice", "random.choice"),
        ("from numpy import random", "numpy.random"),
        ("from torch import randperm", "torch.randperm"),
    ],
)
def test_a_draw_is_seen_however_it_is_written(line, found):
    assert draws(line) == {found}
    assert draws(f"# {line.splitlines()[0]}\nx = torch.ones(3)") == set()


def test_a_relative_import_is_refused():
    with pytest.raises(ValueError, match="Line 2 imports by a relative path"):
        module_arrows({"engine.a": "import os\nfrom .b import c"})
