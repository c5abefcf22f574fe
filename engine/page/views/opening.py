"""The opening page: the recorded race and how far the live page is, while that is loaded. Knows a Record and the page's own files."""

from pathlib import Path

from engine.page.views import page_files
from engine.page.views.standalone import POLICY, filled
from engine.record.race_file import Record

RACES = Path(__file__).resolve().parents[3] / "assets" / "races"


def html() -> str:
    """The page, with the first of the recorded races. It asks the server for one thing, how far the live page is."""
    record = Record.own(min(RACES.glob("*.json")).read_text("utf-8"))
    policy = f"{POLICY}; connect-src 'self'"
    return filled(record, "opening", title="TreeRace", policy=policy, status=page_files.markup("opening"))
