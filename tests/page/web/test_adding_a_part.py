"""A part is one class and one line in its registry: new parts go through every screen with no other word about them anywhere.

What would need a second place (a table by name, a `KeyError` on the way) fails here.
"""

import ast
import json
import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from engine.acceptance import ACCEPTANCES
from engine.breaks import BREAKS
from engine.contracts import SystemPart
from engine.drafters import DRAFTERS
from engine.lab.bench import command as bench
from engine.measure.curves.sweep import SweepPlan
from engine.nets import NETS, PUBLISHED, NetConfig, open_lazy_nets
from engine.page.screens import break_distance
from engine.page.screens.answers import describe_system_card
from engine.page.screens.cards import build_system_menu, describe_all_systems, describe_parts
from engine.page.screens.link import parse_link_to_form_values_and_refusals
from engine.page.web.lending import ServedPairs
from engine.page.web.page import build_gradio_page_and_api
from engine.policies import POLICIES
from engine.race import Race, Settings, parse_grand_prix_systems
from engine.rounds.round_gpu import can_run_rounds_on_device
from engine.sampling import Sampling
from engine.systems import SYSTEMS, resolve_system_name
from helpers.commands import awaited, run
from helpers.new_parts import Again, Comb, Echo, Habit, Habitual
from helpers.pairs import STOP, tiny_pair
from helpers.paths import ROOT

REGISTRIES = {"drafter": DRAFTERS, "policy": POLICIES, "acceptance": ACCEPTANCES}
TEXT = "Story: Once upon a time"
MIX, NAMED = "parrot/comb/again", "echo-comb"


@pytest.fixture(scope="module")
def pair():
    return tiny_pair(same=True)


@pytest.fixture(autouse=True)
def new_parts(monkeypatch):
    """One line each, and a row for the system that has a name of its own."""
    monkeypatch.setitem(DRAFTERS, "parrot", Echo)
    monkeypatch.setitem(POLICIES, "comb", Comb)
    monkeypatch.setitem(ACCEPTANCES, "again", Again)
    monkeypatch.setitem(SYSTEMS, NAMED, replace(resolve_system_name(MIX), name=NAMED, title="echoing comb"))


@pytest.fixture
def api(pair):
    """Runs an endpoint of the page to its end: the events that it streams."""
    endpoints = {
        function.api_name: function.fn for function in build_gradio_page_and_api(ServedPairs(pair)).fns.values()
    }

    async def streamed(name: str, *values, **named) -> list[dict]:
        events = [json.loads(event) async for event in endpoints[name](*values, **named)]
        return [event for event in events if "place" not in event]

    return lambda name, *values, **named: awaited(streamed(name, *values, **named))


def raced(pair, *systems: str, **settings) -> Race:
    race = Race(pair, Settings(settings.pop("prompt", TEXT), systems, max_new_tokens=24, **settings))
    list(race.run())
    return race


def test_a_mix_of_new_parts_is_a_system(pair):
    system = resolve_system_name(MIX)
    assert system.parts == (Echo, Comb, Again)
    assert system.guesses and system.can_branch and system.guarantee == "tokens"
    assert resolve_system_name(f"{MIX}:3x2x8").nodes == 8
    assert parse_link_to_form_values_and_refusals(f"?right={MIX}", pair) == (
        {"right": MIX, **system.default_shape, "untouched": "3x2x8"},
        [],
    )
    with pytest.raises(ValueError, match="comb with speculative would bias the output"):
        resolve_system_name("parrot/comb/speculative")
    with pytest.raises(ValueError, match=r"parrot has none\. Use rank_guided with specblock"):
        resolve_system_name("parrot/rank_guided/again")


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_new_parts_write_plain_decodings_tokens_beside_all_others(pair, temperature):
    mixes = (MIX, "model/comb/token_match", "parrot/auto/again", "parrot/chain/token_match", NAMED)
    race = raced(pair, "vanilla", *mixes, temperature=temperature, seed=3)
    base, *others = (lane.trace for lane in race.lanes)
    assert all(trace.tokens == base.tokens for trace in others)
    assert race.result()["identical"] is True and base.tau == 1
    trees = [step for step in others[0].steps if len(step.tokens) > 2]
    assert trees and all(step.parents.count(0) == 2 for step in trees)
    assert others[1].tau > 1.5  # the target is its own draft


def test_new_parts_draw_from_q_where_a_rule_asks_for_it(pair):
    for mix in ("parrot/chain/speculative", "parrot/dyspec/without_replacement", "parrot/widths/with_replacement"):
        assert raced(pair, "vanilla", mix, temperature=0.9).result()["identical"] == "law"


def test_a_new_net_is_read_from_its_folder_and_drafts(pair, monkeypatch, tmp_path):
    """One line for the net and one for its drafter. Every first guess is what the stored weights say."""
    monkeypatch.setitem(NETS, "habit", Habit)
    monkeypatch.setitem(DRAFTERS, "habit", Habitual)
    model = pair.target.model
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    sizes = NetConfig("habit", hidden=embedding.shape[1], heads=1, mlp=1, layers=0, depth=1, vocab=len(embedding))
    torch.manual_seed(0)
    Habit(sizes, embedding, head).save(tmp_path / "habit")
    stored = load_file(tmp_path / "habit/model.safetensors")["turn.weight"].float()
    race = raced(
        replace(pair, learned=open_lazy_nets(tmp_path, model)), "vanilla", "habit/comb/again", "habit/auto/again"
    )
    assert race.result()["identical"] is True
    steps = [step for step in race.lanes[1].trace.steps if len(step.tokens) > 1]
    guessed = [int((head @ (stored @ embedding[step.tokens[0]])).argmax()) for step in steps]
    assert steps and [step.tokens[1] for step in steps] == guessed
    with pytest.raises(ValueError, match="has no trained habit drafter"):
        Race(pair, Settings(TEXT, ("vanilla", "habit/comb/again")))


def test_every_endpoint_takes_new_parts(api):
    for events in (api("race", TEXT, MIX, 3, 2, 0.0, 16, 0), api("prix", TEXT, [MIX, "tree", NAMED], 0.0, 16, 0)):
        assert events[-1]["end"] is True and events[-1]["identical"] is True
        assert events[-1]["lanes"][1]["name"] == MIX
    swept = api("sweep", [TEXT], NAMED, depth=[1, 3], width=[1, 2], nodes=[8], max_new_tokens=12)
    assert swept[-1]["end"] and all(cell["identical"] is True for cell in swept[-1]["cells"])
    assert swept[0]["system"] == {"name": NAMED, "title": "echoing comb", "guarantee": "tokens"}
    rows = api("prompts", f"{TEXT}\n\nQuestion: how many?", "prompts.txt", MIX, 0.0, 12, 0)
    assert rows[-1]["end"] is True


def test_the_grand_prix_and_the_lab_name_a_new_system():
    assert parse_grand_prix_systems([NAMED, MIX]) == ("vanilla", NAMED, MIX)
    with pytest.raises(ValueError, match=f"Choose one of .*{NAMED}"):
        SweepPlan((TEXT,), system="vanilla")


def test_the_bench_lists_and_races_new_parts(pair, capsys):
    run("bench", "--list")
    assert f"{NAMED:<18}same tokens         echoing comb" in capsys.readouterr().out.splitlines()
    figures = bench.race_prompts_and_compute_figures(pair, [TEXT], Settings(TEXT, (NAMED, MIX), max_new_tokens=12))
    assert [(row["name"], row["identical"]) for row in figures["systems"]] == [(NAMED, True), (MIX, True)]
    assert NAMED in bench.format_bench_report(figures)


def test_the_page_says_of_new_parts_what_their_classes_say(pair):
    assert [describe_parts()[kind][name] for kind, name in zip(REGISTRIES, MIX.split("/"), strict=True)] == [
        {"title": part.title, "about": part.about, "source": part.source} for part in (Echo, Comb, Again)
    ]
    page = json.dumps(build_gradio_page_and_api(ServedPairs(pair)).get_config_file())
    for words in (Echo.about, Comb.about, Again.about, "echoing comb"):
        assert words in page
    assert describe_all_systems()[NAMED] == {
        **describe_system_card([MIX, ""], [replace(pair)]),
        "name": NAMED,
        "title": "echoing comb",
    }
    assert describe_all_systems()[NAMED]["guesses"] is True and describe_all_systems()["vanilla"]["guesses"] is False
    assert ("echoing comb", NAMED) in build_system_menu("vanilla")


@pytest.mark.parametrize("name", BREAKS)
def test_new_parts_can_be_broken_on_purpose(pair, name):
    pair = replace(pair, stop_ids=frozenset({STOP}))  # a constraint needs one
    broken = f"{MIX}!{name}"
    settings = Settings(
        TEXT, (MIX, broken), max_new_tokens=8, constraint="regex:[a-z]+" if name == "constraint" else ""
    )
    for _ in Race(pair, replace(settings, systems=("vanilla", broken))).run():
        pass
    assert next(iter(break_distance.measure_broken_system_distance(pair, settings)))["break"] == name


def test_a_part_made_from_another_does_not_pass_for_it_on_a_device(pair):
    """The GPU's rounds compute the parts that they were written for; the name, not the class, is new in `Again`."""
    sampling, tree = Sampling(device=pair.target.device), resolve_system_name("tree")
    grower = tree.build_policy(pair, tree.default_shape)
    assert can_run_rounds_on_device(pair, tree.drafter, grower, sampling)
    assert not can_run_rounds_on_device(pair, "own", grower, sampling)
    own = type("Own", (type(grower),), {})(3, 2, 8, "ranked")
    assert not can_run_rounds_on_device(pair, tree.drafter, own, sampling)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in REGISTRIES.items() for name in names])
def test_every_part_says_its_title_and_source(kind, name):
    part: type[SystemPart] = REGISTRIES[kind][name]
    own = [(words, vars(part).get(words)) for words in ("title", "about", "source")]
    assert all(value for _, value in own), own
    assert 2 < len(part.title) <= 30 and not part.title.endswith(".") and "_" not in part.title + part.source
    assert [each.title for each in REGISTRIES[kind].values()].count(part.title) == 1


# ---- nobody knows a part by its name ---------------------------------------------------------------------------------

EDITORIAL = ("named_systems.py", "breaks.py", "lab/", "measure/", "nets/")  # which parts to name, measure or train
PLAIN_WORDS = {"none", "model", "best"}  # names that are said of other things too
KINDS = {"drafter", "policy", "acceptance"}
BY_NAME = {"DRAFTERS", "POLICIES", "ACCEPTANCES"}
IN_SCRIPTS = re.compile(
    r"""\b(drafter|policy|acceptance)\s*[!=]==?\s*["']|\b[A-Z_]{3,}\[[\w.]*\.(drafter|policy|acceptance)\b"""
)


def words(node: ast.AST) -> set[str]:
    """All names in an expression."""
    return {getattr(each, "attr", getattr(each, "id", "")) for each in ast.walk(node)}


def says_names(node: ast.AST) -> bool:
    """Whether an expression is a text, a collection that is written out, or something whose name begins with a capital letter."""
    match node:
        case ast.Constant(str()) | ast.Tuple() | ast.List() | ast.Set() | ast.Dict():
            return True
    return getattr(node, "id", "")[:1].isupper()


def asks_for_a_name(node: ast.AST) -> bool:
    """Whether Python code compares a part's name, looks for an attribute of a part, or has a table by the names of parts."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [left, *others]
            asked = any(getattr(each, "attr", getattr(each, "id", "")) in KINDS for each in sides)
            equal = any(isinstance(each, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for each in ops)
            return asked and equal and any(map(says_names, sides))
        case ast.Call(func=ast.Name("hasattr" | "getattr"), args=[asked, *_]):
            return bool(words(asked) & (KINDS | BY_NAME | {"rule"}))
        case (
            ast.Subscript(value=ast.Name(table), slice=key)
            | ast.Call(func=ast.Attribute(ast.Name(table), "get"), args=[key, *_])
        ):
            return table.isupper() and table not in BY_NAME and getattr(key, "attr", "") in KINDS
    return False


def sources(*patterns: str) -> list[tuple[str, str]]:
    """Paths and texts of the files that say something of parts, registries aside."""
    paths = [path for pattern in patterns for path in ROOT.glob(pattern)]
    named = [(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in paths]
    return [
        (path, text)
        for path, text in named
        if not path.removeprefix("engine/").startswith(EDITORIAL)
        and path not in {f"engine/{room}/__init__.py" for room in ("drafters", "policies", "acceptance")}
    ]


def test_no_one_asks_a_system_for_the_names_of_its_parts():
    code = sources("app.py", "engine/**/*.py")
    assert len(code) > 100
    for path, text in code:
        assert not [ast.unparse(node) for node in ast.walk(ast.parse(text)) if asks_for_a_name(node)], path
    for path, text in sources("assets/page/**/*.js"):
        assert not IN_SCRIPTS.search(text), path


def test_no_table_holds_the_names_of_parts():
    names = (
        {name for registry in REGISTRIES.values() for name in registry}
        - set(SYSTEMS)
        - set(NETS)
        - set(PUBLISHED)
        - PLAIN_WORDS
    )
    assert {"kary", "token_match", "bigram"} <= names
    for path, text in sources("app.py", "engine/**/*.py"):
        code = ast.parse(re.sub(r"(?m)^    title = .*$", "", text))  # a part's title may be its name
        said = {each.value for each in ast.walk(code) if isinstance(each, ast.Constant)}
        assert not names & {value for value in said if isinstance(value, str)}, path


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ('system.drafter == "none"', True),
        ('"none" != system.drafter', True),
        ('system.policy in ("kary",)', True),
        ("policy not in NAMED", True),
        ('hasattr(policy, "needs")', True),
        ('getattr(POLICIES[system.policy], "reads_costs", False)', True),
        ("TABLE[system.drafter]", True),
        ("METHODS.get(setting.system.policy)", True),
        ("DRAFTERS[self.drafter]", False),
        ("right.acceptance == chosen.parts", False),
        ("system.drafter is None", False),
        ("acceptance == 1", False),
    ],
)
def test_a_question_for_a_name_is_seen(code, seen):
    assert asks_for_a_name(ast.parse(code, mode="eval").body) is seen


def test_a_script_that_asks_for_a_name_is_seen():
    assert IN_SCRIPTS.search("filter(({ drafter }) => drafter !== 'none')") and IN_SCRIPTS.search(
        "KINDS[system.drafter]"
    )
    assert not IN_SCRIPTS.search("choices[system.drafter]")
