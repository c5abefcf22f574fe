"""What a visitor may begin with: prompts to try, and recorded races. Knows the files in `assets/`; knows no page."""

from engine.measure.options import ASSETS, gallery
from engine.record.race_file import Record

PROMPTS = gallery()
RACES = {path.stem: Record.from_json(path.read_text("utf-8")) for path in sorted((ASSETS / "races").glob("*.json"))}


def races() -> list[dict[str, str]]:
    """The recorded races as entries of a menu."""
    return [entry(name, record) for name, record in RACES.items()]


def entry(name: str, record: Record) -> dict[str, str]:
    """One race: its name, the title of its last lane, its prompt."""
    trace, title = record.lanes[-1].trace, record.lanes[-1].title
    return {"name": name, "title": f"{title}, temperature {trace.temperature:g}", "prompt": trace.prompt}
