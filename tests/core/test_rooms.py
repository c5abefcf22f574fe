"""The house: what may import what, checked in fresh processes and in the sources."""

import re
import subprocess
import sys

import pytest

from helpers.paths import ROOT


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("engine.record.trace", "torch"),
        ("engine.record.race_file", "torch"),
        ("engine.views", "torch"),
        ("engine.views", "gradio"),
        ("engine.race", "gradio"),
        ("engine.measure.bench", "gradio"),
    ],
)
def test_a_module_does_not_import(module, forbidden):
    code = f"import importlib, pkgutil, sys; m = importlib.import_module({module!r}); "
    code += "[importlib.import_module(f'{m.__name__}.{x.name}') for x in pkgutil.iter_modules(getattr(m, '__path__', []))]; "
    code += f"sys.exit({forbidden!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=120, check=False).returncode == 0


def test_randomness_comes_from_sampling_alone():
    drawing = re.compile(r"torch\.(rand|randn|multinomial|manual_seed)\b|np\.random|\brandom\.(random|choice|seed)\(")
    for path in (ROOT / "engine").rglob("*.py"):
        if path.name != "sampling.py" and "train" not in path.parts:
            assert not drawing.search(path.read_text(encoding="utf-8")), path


def test_the_decode_loop_fits_on_a_screen():
    source = (ROOT / "engine" / "decode.py").read_text(encoding="utf-8")
    assert len(source[source.index("def decode(") :].splitlines()) <= 50


def test_views_need_neither_torch_nor_gradio():
    code = "import sys, engine.views.wire; sys.exit(bool({'torch', 'gradio', 'plotly', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
