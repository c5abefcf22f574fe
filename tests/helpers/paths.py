"""Where the repository stands, and where the browser does."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
