"""Hand-made steps and races: one tree of six nodes, plain decoding beside it, the costs of both. No model."""

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

from engine.page.views import wire
from engine.page.views.wire import RunEvent, serialise_and_number_messages
from engine.record.costs import Costs
from engine.record.quiet import WorkSignal
from engine.record.race_file import LaneRecord, Record
from engine.record.trace import Step, Trace

#            0 root
#           / \
#         1    2
#        / \    \
#       3   4    5
PARENTS = [-1, 0, 0, 1, 1, 2]
PLAIN = Costs({1: 2.0, 2: 2.1, 4: 2.3, 8: 2.8, 16: 4.0, 64: 9.0}, 0.0, 0.0)
DRAFTED = Costs(PLAIN.verify_ms, 0.51, 0.4)


def events(race, **pace) -> Iterator[str]:
    """What the page hears of a race."""
    return (
        event.json_text
        for event in serialise_and_number_messages(
            uuid.uuid4().hex, wire.run_race_and_its_repeats_as_messages(race, **pace)
        )
        if isinstance(event, RunEvent)
    )


def make_step(**changes) -> Step:
    """The tree above with 1 and 4 accepted, then a bonus. No branch guessed the bonus, because 4 has none."""
    values = {
        "index": 0,
        "position": 7,
        "tokens": [10, 11, 12, 13, 14, 15],
        "parents": PARENTS,
        "texts": [" was", " a", " the", " big", " little", " end"],
        "score": [1.0, 0.6, 0.3, 0.2, 0.3, 0.2],
        "q": [1.0, 0.6, 0.3, 0.4, 0.5, 0.7],
        "p": [1.0, 0.7, 0.2, 0.1, 0.8, 0.1],
        "verdicts": ["root", "accepted", "rejected", "rejected", "accepted", "unreached"],
        "path": [1, 4],
        "bonus": 99,
        "bonus_text": " fox",
        "bonus_p": 0.5,
        "burst": [11, 14, 99],
        "pieces": [" a", " little", " fox"],
        "end": "",
        "seconds": {"draft": 0.002, "verify": 0.003},
        "draft_forwards": 2,
    }
    return Step(**values | changes)


def one_node(**changes) -> Step:
    return make_step(
        tokens=[10], parents=[-1], texts=[" was"], score=[1.0], q=[1.0], p=[1.0], verdicts=["root"], path=[], **changes
    )


@dataclass
class FakeRace:
    """Two lanes of given steps in the order of their clocks. `closed` says whether the run was closed."""

    steps: list[tuple[int, Step]]
    lanes: list[SimpleNamespace] = field(default_factory=list)
    closed: bool = False

    def __post_init__(self):
        for name in ("vanilla", "tree"):
            system = SimpleNamespace(name=name, title=name.title(), idea="An idea.", guarantee="tokens")
            trace = Trace(name, "a pair", "a machine", "fp32", "Once", [1, 2], 0.0, 3, 4, 4, 8, 40)
            self.lanes.append(SimpleNamespace(system=system, trace=trace))

    def run(self) -> Iterator[tuple[int, Step]]:
        try:
            for lane, step in self.steps:
                self.lanes[lane].trace.steps.append(step)
                yield lane, step
        finally:
            self.closed = True

    def poll_steps(self) -> Iterator[tuple[int, Step]]:
        return self.run()

    def repeat_and_show_median_run_in_steps(self) -> Iterator[WorkSignal]:
        """No further run, unless a test says otherwise."""
        yield from ()

    def to_record(self) -> Record:
        costs = (PLAIN, DRAFTED)
        about = [(lane.system.title, lane.system.idea, lane.system.guarantee) for lane in self.lanes]
        return Record(
            [LaneRecord(*each, cost, lane.trace) for each, cost, lane in zip(about, costs, self.lanes, strict=True)],
            "",
        )


def race_of(rounds: int) -> FakeRace:
    steps = []
    for index in range(rounds):
        end = "length" if index == rounds - 1 else ""
        steps += [
            (0, one_node(index=index, burst=[99], pieces=[" fox"], end=end)),
            (1, make_step(index=index, end=end)),
        ]
    return FakeRace(steps)


def made_race(left_end: str = "length", right_end: str = "length") -> Record:
    """Plain decoding and a tree that write the same six tokens."""
    tokens = [11, 14, 99, 11, 14, 99]
    pieces = [" a", " little", " fox"] * 2
    left = [
        one_node(index=at, burst=[token], bonus=token, pieces=[pieces[at]], bonus_text=pieces[at], draft_forwards=0)
        for at, token in enumerate(tokens)
    ]
    right = [make_step(index=0), make_step(index=1)]
    for steps, end in ((left, left_end), (right, right_end)):
        steps[-1] = replace(steps[-1], end=end)
    traces = [
        Trace(name, "a pair", "a machine", "fp32", "Once", [1, 2], 0.0, 3, 4, 4, 8, 40, steps)
        for name, steps in (("vanilla", left), ("tree", right))
    ]
    lanes = [("token by token", PLAIN), ("draft tree", DRAFTED)]
    return Record(
        [
            LaneRecord(title, "An idea.", "tokens", costs, trace)
            for (title, costs), trace in zip(lanes, traces, strict=True)
        ],
        "2026-01-31",
    )


def piece(index: int, text: str, end: str = "", note: str = "") -> Step:
    """A piece of a remote server's text, which counts as one token for each word."""
    nothing = {name: [] for name in ("tokens", "parents", "texts", "score", "q", "p", "verdicts", "path")}
    told = {"bonus": 0, "bonus_text": note, "bonus_p": 0.0, "seconds": {"wait": 0.01}, "draft_forwards": 0}
    return make_step(index=index, **nothing, **told, burst=[7] * len(text.split()), pieces=[text], end=end)


def remote_race(text: str = " a little fox a little fox", end: str = "length", note: str = "") -> Record:
    """Plain decoding, and another server that writes this text in two pieces."""
    record = made_race()
    steps = [piece(0, text[:13]), piece(1, text[13:], end, note)]
    trace = replace(record.lanes[0].trace, system="remote", hardware="remote: a server, its own clock", steps=steps)
    record.lanes[1] = LaneRecord("remote: a server", "An idea.", "text", Costs({}, 0.0, 0.0), trace)
    return record


def spoilt(change: Callable[[dict], object]) -> str:
    values = json.loads(made_race().to_json())
    change(values)
    return json.dumps(values)


def setting(path: str, value: object) -> Callable[[dict], None]:
    """Sets what "lanes.1.title" names."""

    def change(values: dict) -> None:
        *way, last = [int(each) if each.isdigit() else each for each in path.split(".")]
        for each in way:
            values = values[each]
        values[last] = value

    return change


WORDS = (
    " the",
    " house",
    " and",
    " looked",
    " suddenly",
    " a",
    " little",
    " grandmother",
    " was",
    " because",
    " mountain",
    ",",
)


def bushy(nodes: int, depth: int = 6, **changes) -> Step:
    """A step whose tree has so many nodes in `depth` levels, words of every length, and a path off the favourites."""
    parents, levels = [-1], [0]
    for node in range(1, nodes):
        open_nodes = [at for at in range(node) if levels[at] < depth]
        parent = node - 1 if node <= min(depth, nodes - 2) else open_nodes[node * 7919 % len(open_nodes)]
        parents.append(parent)
        levels.append(levels[parent] + 1)
    path, at = [], 0
    while len(path) < depth - 1:
        children = [node for node, parent in enumerate(parents) if parent == at]
        if not children:
            break
        at = next((node for node in reversed(children) if node in parents), children[0])
        path.append(at)
    texts = [" was", *(WORDS[node * 5 % len(WORDS)] for node in range(1, nodes))]
    shares = [1.0, *((node * 37 % 97 + 1) / 100 for node in range(1, nodes))]
    reached = {0, *path}
    verdicts = [
        "accepted" if node in path else "rejected" if parents[node] in reached else "unreached" for node in range(nodes)
    ]
    told = {"tokens": list(range(nodes)), "parents": parents, "texts": texts, "score": shares, "q": shares, "p": shares}
    burst = {"path": path, "burst": [*path, 99], "pieces": [*(texts[node] for node in path), " grandmother"]}
    return make_step(
        **told, **burst, verdicts=["root", *verdicts[1:]], bonus_text=" grandmother", draft_forwards=depth, **changes
    )
