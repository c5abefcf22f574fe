"""What the documents promise a reader: their links lead somewhere, their examples run, their lists are complete."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.acceptance import ACCEPTANCES
from engine.models.pairs import PAIRS
from engine.systems import SYSTEMS

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "Spaces.md",
    ROOT / ".github" / "CONTRIBUTING.md",
    *sorted((ROOT / "assets").rglob("*.md")),
    *sorted((ROOT / "engine").rglob("*.md")),
]
OUTPUTS = {"tokens": "same tokens", "law": "same distribution", "lossy": "**lossy** above T = 0"}


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)


def rows(document: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, its own head left out."""
    found = re.search(rf"^## {heading}\n.*?^\| --- [^\n]*\n((?:\|[^\n]*\n)+)", document, re.MULTILINE | re.DOTALL)
    return [[cell.strip() for cell in row.strip("|\n ").split(" | ")] for row in found[1].splitlines()]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(path):
    links = re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (path.parent / link.partition("#")[0]).exists()]
    assert not missing


def test_the_readme_is_short_and_its_front_matter_is_what_spaces_read():
    readme = text("README.md")
    assert len(readme.splitlines()) <= 175
    front = readme.split("---\n")[1]
    expected = (
        "sdk: gradio",
        "app_file: app.py",
        "license: apache-2.0",
        "python_version: ",
        "suggested_hardware: ",
        "thumbnail: ",
    )
    for line in (*expected, "tags: ["):
        assert f"\n{line}" in front
    named = {path for pair in PAIRS.values() for path in (pair.target, pair.draft) if path and not Path(path).is_dir()}
    assert set(re.findall(r"[\w.-]+/[\w.-]+", front.split("models: ")[1])) == named


def test_a_table_of_the_readme_names_the_tests_that_hold_it():
    section = text("README.md").split("## What happens if")[1].split("\n## ")[0]
    named = re.findall(r"`(tests/[\w/.]+)`", section)
    assert len(named) >= 7 and all((ROOT / path).is_file() for path in named)


def test_the_readme_leads_to_every_document():
    linked = {(ROOT / link).resolve() for link in re.findall(r"\]\(([^)\s]+)\)", text("README.md"))}
    assert set(DOCUMENTS) - {ROOT / "README.md"} <= linked


@pytest.mark.slow
def test_the_examples_of_the_readme_run():
    """In a fresh process, one after another. It may have to compile the kernels first."""
    examples = blocks(text("README.md"), "python")
    assert any("race.run()" in example for example in examples)
    code = "\n".join(examples)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, timeout=900, check=True, capture_output=True, text=True
    )
    speedup, identical = done.stdout.split()[-2:]
    assert float(speedup) > 0 and identical == "True"


def test_the_house_is_drawn_as_it_stands():
    """Every room and every module that stands beside the rooms has a line in the picture, and nothing else has one."""
    [picture] = [block for block in blocks(text("engine/README.md"), "") if block.startswith("engine/\n")]
    drawn = {line.split()[0].rstrip("/") for line in picture.splitlines()[1:]}
    engine = ROOT / "engine"
    standing = {path.name for path in engine.glob("*.py") if not path.name.startswith("__")}
    standing |= {path.parent.name for path in engine.glob("*/__init__.py")}
    assert drawn == standing


def test_the_table_of_systems_is_complete_and_says_what_each_promises():
    table = {row[0].strip("`"): row[-1] for row in rows(text("engine/README.md"), "Systems")}
    assert table.pop("vanilla") == "the baseline, in the same loop"
    promised = {name: OUTPUTS[ACCEPTANCES[system.acceptance].guarantee] for name, system in SYSTEMS.items()}
    assert promised.pop("vanilla") == "same tokens"
    assert table == promised


def test_every_table_of_measurements_names_machine_and_commit():
    """One vintage a table: each section with a table says on what and of which commit."""
    sections = text("assets/results/README.md").split("\n## ")[1:]
    measured = [section for section in sections if "\n| " in section and not section.startswith("Words")]
    assert len(measured) > 4
    for section in measured:
        assert re.search(r"Machine [AB], commit `[0-9a-f]{7}`", section), section.splitlines()[0]
