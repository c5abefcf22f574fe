"""Importing Gradio: without the type stubs that it would write, and with nothing left behind."""

import subprocess
import sys

from helpers.paths import ROOT

STUBS = """
import inspect, sys
opened, file_of = [], inspect.getfile
sys.addaudithook(lambda event, about: opened.append(str(about[0])) if event == "open" else None)
from engine.page.web import import_gradio
import_gradio()
print("gradio.blocks" in sys.modules)
print([name for name in opened if name.endswith(".pyi")])
print(inspect.getfile is file_of)
"""


def test_gradio_is_imported_without_writing_type_stubs():
    done = subprocess.run([sys.executable, "-c", STUBS], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.split("\n")[:3] == ["True", "[]", "True"]
