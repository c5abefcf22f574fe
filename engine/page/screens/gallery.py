"""What a visitor may begin with: prompts to try, and recorded races. Knows the files in `assets/`; knows no page."""

from engine.measure.options import ASSETS, gallery
from engine.record.race_file import Record

PROMPTS = gallery()
RACES = {path.stem: Record.from_json(path.read_text("utf-8")) for path in sorted((ASSETS / "races").glob("*.json"))}


def races() -> list[dict[str, str]]:
    """The recorded races as entries of a menu: a race's name, the title of its last lane, its prompt."""
    last = {name: record.lanes[-1] for name, record in RACES.items()}
    return [
        {"name": name, "title": f"{lane.title}, temperature {lane.trace.temperature:g}", "prompt": lane.trace.prompt}
        for name, lane in last.items()
    ]
