"""What the documents promise a reader: their links lead somewhere, their examples run, their lists are complete."""

import re
from itertools import accumulate
from pathlib import Path

import pytest

from engine.acceptance import ACCEPTANCES
from engine.models.pairs import MODELS, PACKAGES, PAIRS, SMOLLM2, Checkpoint
from engine.models.refusals import refuse_missing_or_pickled_weights
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


def test_the_readmes_front_matter_is_what_spaces_read():
    front = text("README.md").split("---\n")[1]
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
    named = {path for pair in PAIRS.values() for path in (pair.target, pair.draft) if path and not Path(path).exists()}
    named |= {*PACKAGES}  # of which a package may hold the model here
    assert re.findall(r"^  - (\S+) \S*model\.safetensors\S* (\S+)$", front, re.MULTILINE) == [SMOLLM2]
    assert set(re.findall(r"[\w.-]+/[\w.-]+", front.split("models: ")[1])) == named


def test_a_table_of_the_readme_names_the_tests_that_hold_it():
    section = text("README.md").split("## What happens if")[1].split("\n## ")[0]
    named = re.findall(r"`(tests/[\w/.]+)`", section)
    assert len(named) >= 7 and all((ROOT / path).is_file() for path in named)


PATHS = re.compile(r"(?<![\w/.-])(?:(?:engine|tests|assets)/[\w./-]*\.\w+|[\w-]+\.(?:js|d\.ts|css)\b)")
WRITTEN = [path for folder in ("engine", "tests", "assets/page") for path in (ROOT / folder).rglob("*.*")]


def test_a_file_that_code_speaks_of_is_there():
    """In comments and texts of Python, JavaScript, styles and markup. A name without a folder is one of the page's files."""
    sources = [path for path in WRITTEN if path.suffix in (".py", ".js", ".ts", ".css", ".html")]
    standing, missing = {path.name for path in sources}, []
    for path in sources:
        for found in PATHS.findall(path.read_text(encoding="utf-8")):
            there = (ROOT / found).exists() if "/" in found else found in standing
            missing += [] if there else [f"{path.relative_to(ROOT)}: {found}"]
    assert missing == []


def test_the_readme_leads_to_every_document():
    """In one step, or by way of another document."""

    def linked(path: Path) -> set[Path]:
        return {(path.parent / link).resolve() for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8"))}

    found = linked(ROOT / "README.md") & set(DOCUMENTS)
    found |= {other for path in found for other in linked(path)}
    assert set(DOCUMENTS) - {ROOT / "README.md"} <= found


@pytest.mark.slow
def test_the_examples_of_the_readme_run(monkeypatch, capsys):
    """One after another, with nothing but their own names. They may have to compile the kernels first."""
    examples = blocks(text("README.md"), "python")
    assert any("race.run()" in example for example in examples)
    monkeypatch.chdir(ROOT)
    exec("\n".join(examples), {"__name__": "an example"})
    speedup, identical = capsys.readouterr().out.split()[-2:]
    assert float(speedup) > 0 and identical == "True"


def test_the_house_is_drawn_as_it_stands():
    """Every room and every module that stands beside the rooms has a line in the picture, and nothing else has one. A command's folder
    in the laboratory needs none."""
    [picture] = [block for block in blocks(text("engine/README.md"), "") if block.startswith("engine/\n")]
    drawn = {line.split()[0].rstrip("/") for line in picture.splitlines()[1:] if line}
    engine = ROOT / "engine"
    standing = {path.name for path in engine.glob("*.py") if not path.name.startswith("__")}
    standing |= {path.parent.name for folder in ("*", "page/*") for path in engine.glob(f"{folder}/__init__.py")}
    assert drawn == standing | {"train"}


def test_what_each_second_shows_is_what_the_story_takes():
    script = text("assets/page/story/story-script.js")
    [first] = re.findall(r"GUESSING = ([0-9.]+)", script)
    seconds = re.findall(r'\["\w+", (GUESSING|[0-9.]+),', script.split("const planned = [")[1].split("];")[0])
    ends = [round(end, 1) for end in accumulate(float(each.replace("GUESSING", first)) for each in seconds)]
    assert len(ends) == 6
    told = rows(text("engine/README.md"), "What each second shows")
    assert [row[0] for row in told] == [f"{a} to {b}" for a, b in zip([0.0, *ends], ends, strict=False)]


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
        assert re.search(r"Machine [ABCDE], commit `[0-9a-f]{7}`", section), section.splitlines()[0]


def test_what_spaces_say_of_missing_weights_is_what_the_app_says():
    said = re.findall(r'^\| "([^"]+)" [^|]*\| the upload left `assets/models/` behind', text("Spaces.md"), re.MULTILINE)
    with pytest.raises(ValueError, match="weights") as refusal:
        refuse_missing_or_pickled_weights(Checkpoint(str(MODELS / "nothing")))
    assert len(said) == 1 and str(refusal.value).startswith(said[0])
