"""The race file: it survives JSON exactly, and a file that no race can have written is refused with a sentence. No model, no page."""

import copy
import json
import math
from dataclasses import replace

import pytest

from engine.record.race_file import Record, first_and_last_of_shown_lanes
from helpers.traces import DRAFTED, made_race, remote_race, setting, spoilt


def step_of(values: dict) -> dict:
    return values["lanes"][1]["trace"]["steps"][0]


STEP = "lanes.1.trace.steps.0"


def test_a_record_survives_json_exactly():
    record = made_race()
    assert Record.from_json(record.to_json()) == record
    assert Record.from_json(record.to_json()).lanes[1].costs.verify_ms == DRAFTED.verify_ms
    odd = made_race()
    odd.lanes[1].trace.steps[0].pieces[0] = "\u0000</script><b>{{x}}\u2028 日本 🦊"
    odd.lanes[1].trace.steps[0].seconds["draft"] = 0.1 + 0.2
    assert Record.from_json(odd.to_json()) == odd


def test_steps_of_before_replayed_nothing():
    values = json.loads(made_race().to_json())
    assert step_of(values).pop("replayed") == 0
    assert Record.from_values(values) == made_race()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no JSON"),
        ("{", "no JSON: .* line 1, column 2"),
        ("[]", "must be an object, got a list"),
        ("null", "must be an object, got null"),
        ('"lanes"', "must be an object, got 'lanes'"),
        ("[" * 200_000, "nested too deeply"),
        ('{"lanes":' * 100_000, "nested too deeply"),
        ('{"lanes": NaN, "recorded": ""}', "NaN is no number"),
        ('{"lanes": -Infinity, "recorded": ""}', "-Infinity is no number"),
        ('{"lanes": [], "recorded": ""}', "lanes must hold 1 to 8 lanes, got 0"),
        ('{"recorded": ""}', "missing 'lanes', unknown nothing"),
        ('{"lanes": {}, "recorded": ""}', "lanes must be a list, got an object"),
        ("x" * 20_000_001, "20.0 MB; at most 20 MB"),
    ],
)
def test_what_is_no_race_at_all_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        Record.from_json(text)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("recorded", "yesterday", "recorded must be a day"),
        ("recorded", 20260131, "recorded must be a text"),
        ("lanes.0", 3, r"lanes\[0\] must be an object, got 3"),
        ("lanes.0.title", None, r"lanes\[0\].title must be a text, got null"),
        ("lanes.0.title", "x" * 20_001, "20,001 characters"),
        ("lanes.0.title", "\ud800", "half a character"),
        ("lanes.0.guarantee", "maybe", "must be one of 'tokens', 'law', 'lossy', 'text', got 'maybe'"),
        (f"{STEP}.replayed", 2, r"replayed must be 0 or the 3 of root and path, got 2"),
        (f"{STEP}.replayed", -1, "replayed holds a negative"),
        ("lanes.0.extra", 1, "unknown 'extra'"),
        ("lanes.0.costs.verify_ms", {}, "forwards over 1 and more"),
        ("lanes.0.costs.verify_ms", {"0": 1.0}, "forwards over 1 and more"),
        ("lanes.0.costs.verify_ms", {"one": 1.0}, "keys of .* must be whole numbers, got 'one'"),
        ("lanes.0.costs.verify_ms", {"9" * 5000: 1.0}, "must be whole numbers"),
        ("lanes.0.costs.first_ms", -1.0, "negative number"),
        ("lanes.0.costs.level_ms", True, "must be a number, got true or false"),
        ("lanes.0.trace.prompt", ["x"], "prompt must be a text, got a list"),
        ("lanes.0.trace.prompt", "Twice", "differs from the first lane's"),
        ("lanes.0.trace.turns", "Hi", "turns must be a list, got 'Hi'"),
        ("lanes.0.trace.turns", [["Hi", 1]], r"turns\[0\]\[1\] must be a text, got 1"),
        ("lanes.0.trace.turns", [["Hi", "Hello!"]], "turns must be empty: only a chat has earlier turns"),
        ("lanes.1.trace.seed", 4, "seed differs from the first lane's"),
        ("lanes.0.trace.seed", 1.5, "must be a whole number, got 1.5"),
        ("lanes.0.trace.seed", 10**30, "too large"),
        ("lanes.0.trace.seed", -1, "negative"),
        ("lanes.0.trace.depth", 0, "depth must be 1 or more"),
        ("lanes.0.trace.temperature", "hot", "must be a number, got 'hot'"),
        ("lanes.0.trace.steps", [], "must hold 1 to 1,000 steps, got 0"),
        ("lanes.0.trace.steps", "none", "must be a list"),
        (f"{STEP}.index", 5, "index must be 0, got 5"),
        (f"{STEP}.tokens", [], "must hold 1 to 400 nodes, got 0"),
        (f"{STEP}.tokens", [10, 11, 12, 13, 14], "as long as tokens: 5, got 6"),
        (f"{STEP}.tokens", [10, -11, 12, 13, 14, 15], "burst must be|negative"),
        (f"{STEP}.texts.0", 3, r"texts\[0\] must be a text, got 3"),
        (f"{STEP}.p", [1.0], r"p must be as long as tokens: 6, got 1"),
        (f"{STEP}.q.2", -0.5, "negative number, -0.5"),
        (f"{STEP}.score.2", None, r"score\[2\] must be a number, got null"),
        (f"{STEP}.parents", [-1, 0, 3, 1, 1, 2], "no tree: node 2 cannot have parent 3"),
        (f"{STEP}.parents", [-1, 0, 0, 1, 4, 2], "no tree: node 4 cannot have parent 4"),
        (f"{STEP}.parents", [0, 0, 0, 1, 1, 2], "no tree: node 0 cannot have parent 0"),
        (f"{STEP}.parents", [-1, -1, 0, 1, 1, 2], "no tree: node 1 cannot have parent -1"),
        (f"{STEP}.path", [1, 5], "no path: node 5 is no child of node 1"),
        (f"{STEP}.path", [99], "no path: node 99"),
        (f"{STEP}.path", [0], "no path: node 0"),
        (f"{STEP}.path", [2], "holds node 2, which was rejected"),
        (f"{STEP}.verdicts.1", "liked", "must be one of 'accepted'"),
        (f"{STEP}.verdicts.1", "root", "the root is node 0"),
        (f"{STEP}.verdicts.0", "accepted", "the root is node 0"),
        (f"{STEP}.burst", [], "burst must be the path's tokens"),
        (f"{STEP}.burst", [11, 12, 99], "burst must be the path's tokens"),
        (f"{STEP}.pieces", ["x"], "pieces must be as long as burst: 3, got 1"),
        (f"{STEP}.end", "bored", "end must be one of '', 'stop'"),
        (f"{STEP}.end", "stop", "another step follows"),
        (f"{STEP}.seconds", {"lunch": 1.0}, "must be one of 'prefill'"),
        (f"{STEP}.seconds", {"draft": -1e-9}, "negative"),
        (f"{STEP}.seconds", {"draft": 1e300}, "more than a day"),
        (f"{STEP}.seconds", [0.1], "must be an object, got a list"),
        (f"{STEP}.draft_forwards", -1, "negative"),
    ],
)
def test_a_wrong_value_is_named(path, value, words):
    with pytest.raises(ValueError, match=words) as refusal:
        Record.from_json(spoilt(setting(path, value)))
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "9" * 6000, "1e5000"])
def test_numbers_that_are_none_are_refused(number):
    text = made_race().to_json().replace('"bonus_p":0.5', f'"bonus_p":{number}', 1)
    with pytest.raises(ValueError, match=r"no number|must be finite|too large"):
        Record.from_json(text)


def test_too_much_of_anything_is_refused():
    def lanes(values):
        values["lanes"] *= 5

    def steps(values):
        trace = values["lanes"][0]["trace"]
        trace["steps"] = [{**trace["steps"][0], "index": at} for at in range(1001)]

    def nodes(values):
        step = step_of(values)
        step["tokens"] += [1] * 400

    for change, words in ((lanes, "1 to 8 lanes, got 10"), (steps, "1 to 1,000 steps"), (nodes, "1 to 400 nodes")):
        with pytest.raises(ValueError, match=words):
            Record.from_json(spoilt(change))


def test_a_lane_that_took_no_time_is_refused():
    def still(values):
        for step in values["lanes"][0]["trace"]["steps"]:
            step["seconds"] = {}

    with pytest.raises(ValueError, match="took no time"):
        Record.from_json(spoilt(still))


def test_every_value_of_a_race_file_is_checked():
    """Whatever is put in the place of any value, what is read is refused in a sentence or can be compared and written again."""
    values = json.loads(made_race().to_json())

    def places(value, path=()):
        if path:
            yield path
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for name, each in inner:
            if not (isinstance(name, int) and name > 1):
                yield from places(each, (*path, name))

    read = 0
    for path in places(values):
        for hostile in (None, True, -7, 2**70, 0.5, "<b>", [], {}, [[]], {"x": {}}):
            changed = copy.deepcopy(values)
            at = changed
            for name in path[:-1]:
                at = at[name]
            at[path[-1]] = hostile
            try:
                record = Record.from_json(json.dumps(changed))
            except ValueError:
                continue
            record.result()
            assert Record.from_json(record.to_json()) == record
            read += 1
    assert read > 0


def test_two_lanes_stand_side_by_side():
    record = made_race()
    assert first_and_last_of_shown_lanes(record) == record.lanes
    for count in (1, 4):
        with pytest.raises(ValueError, match=f"this one has {count} lane"):
            first_and_last_of_shown_lanes(Record((record.lanes * 2)[:count], ""))


# ---- a race that was stopped


def test_a_finished_race_says_so():
    result = made_race().result()
    assert result["finished"] and result["identical"] is True and result["divergence"] is None


def test_of_a_stopped_race_only_what_both_wrote_is_compared():
    record = made_race("", "")
    record.lanes[0].trace.steps[4:] = []
    result = Record.from_json(record.to_json()).result()
    assert not result["finished"] and result["identical"] is True and result["divergence"] is None
    record.lanes[0].trace.steps[3].burst[0] = 77
    assert record.result()["identical"] is False and record.result()["divergence"]["index"] == 3


def test_a_text_that_ended_early_is_another_text():
    record = made_race("stop", "")
    record.lanes[0].trace.steps[4:] = [replace(record.lanes[0].trace.steps[4], end="stop")]
    assert record.result()["identical"] is False


def parted_race(dtype: str, chance: float, temperature: float = 0.0) -> dict:
    """What is said of two lanes whose fourth tokens differ, where the tree's has this probability and the other's one half."""
    record = made_race()
    for lane in record.lanes:
        lane.trace.dtype, lane.trace.temperature = dtype, temperature
    plain, tree = (lane.trace.steps for lane in record.lanes)
    plain[3] = replace(plain[3], bonus_p=0.5)
    tree[1] = replace(tree[1], tokens=[99, 77, *tree[1].tokens[2:]], burst=[77, *tree[1].burst[1:]])
    tree[1].p[tree[1].path[0]] = chance
    return record.result()["divergence"]


def test_a_near_tie_of_a_rounding_type_is_called_so_with_its_margin():
    said = parted_race("bf16", 0.48)
    assert said["index"] == 3 and said["margin"] == pytest.approx(math.log(0.5 / 0.48))
    assert said["words"].startswith("A near-tie: bf16 rounds, and the two tokens are 0.04 apart in log-probability.")
    for dtype, chance, temperature in (("fp32", 0.48, 0.0), ("bf16", 0.1, 0.0), ("bf16", 0.48, 0.8)):
        assert parted_race(dtype, chance, temperature)["words"] == ""
    assert (
        parted_race("bf16", 0.1)["margin"] == pytest.approx(math.log(5))
        and parted_race("bf16", 0.48, 0.8)["margin"] is None
    )


# ---- a lane that another server wrote


def test_a_remote_lane_survives_json_and_is_compared_by_text():
    record = remote_race()
    assert Record.from_json(record.to_json()) == record
    result = record.result()
    assert result["identical"] == "text" and result["divergence"] is None and result["finished"]
    assert [lane["tau"] for lane in result["lanes"]] == [1.0, None] and result["lanes"][1]["tokens"] == 6
    record.lanes[0], record.lanes[1] = record.lanes[1], record.lanes[0]
    assert record.result()["identical"] == "text"


def test_where_a_remote_lanes_text_differs_is_said_by_character():
    record = remote_race(" a little wolf")
    result = record.result()
    assert result["identical"] == "other text"
    assert result["divergence"] == {
        "index": 10, "left": "fox a little fox", "right": "wolf", "margin": None, "words": "",
    }  # fmt: skip
    assert remote_race(" a little fox").result()["divergence"]["right"] == "(end)"
    assert remote_race(end="").result()["identical"] == "text"
    assert remote_race(" a", end="").result()["identical"] == "text" and not remote_race(end="").result()["finished"]
    assert remote_race(" a", end="failed", note="It broke.").result()["identical"] == "failed"


def test_figures_by_lane_are_each_lanes_own():
    record = made_race()
    record.lanes[1].trace.steps.pop()
    left, right = record.result()["lanes"]
    assert (left["tokens"], right["tokens"], left["forwards"], right["forwards"]) == (6, 3, 6, 1)
    assert right["tau"] == 3 and right["tokens_per_s"] == pytest.approx(3 / right["seconds"])


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("lanes.0.guarantee", "text", "must be empty: a remote lane has no trees"),
        ("lanes.1.guarantee", "tokens", "forwards over 1 and more"),
        (f"{STEP}.tokens", [1], "tokens must be empty"),
        (f"{STEP}.texts", ["<b>"], "texts must be empty"),
        (f"{STEP}.path", [1], "path must be empty"),
        (f"{STEP}.pieces", ["a", "b"], "must hold one text, got 2"),
        (f"{STEP}.burst", [-1], "negative"),
        (f"{STEP}.end", "bored", "must be one of '', 'stop', 'length', 'context', 'failed'"),
        (f"{STEP}.end", "failed", "another step follows"),
        (f"{STEP}.seconds", {"wait": -1.0}, "negative"),
        ("lanes.0.trace.steps.5.end", "failed", "must be one of '', 'stop', 'length', 'context', got"),
    ],
)
def test_a_wrong_value_of_a_remote_lane_is_named(path, value, words):
    values = json.loads(remote_race().to_json())
    setting(path, value)(values)
    with pytest.raises(ValueError, match=words):
        Record.from_json(json.dumps(values))


# ---- what a lane promises


@pytest.mark.parametrize(
    ("guarantee", "temperature", "identical"),
    [
        ("tokens", 0.8, False),
        ("law", 0.8, "law"),
        ("law", 0.0, False),
        ("lossy", 0.8, "lossy"),
        ("lossy", 0.0, "lossy"),
    ],
)
def test_another_text_is_the_same_law_only_where_chance_has_a_part(guarantee, temperature, identical):
    record = made_race()
    for lane in record.lanes:
        lane.trace.temperature = temperature
    record.lanes[1].guarantee = guarantee
    record.lanes[1].trace.steps[1].burst[-1] = 77
    result = record.result()
    assert result["identical"] == identical and result["lanes"][1]["identical"] == identical
