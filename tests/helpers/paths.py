"""Where the repository stands, and where the browser does."""

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
OF_TESTS = {
    **os.environ,
    "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
}  # of a process that imports engine and helpers
# The first is Chromium without its windows, which take a tenth of the time of a page
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
