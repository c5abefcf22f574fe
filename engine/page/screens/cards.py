"""What the screens say about systems and their parts: cards, menus, fields to race. Knows words and names; runs nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from engine.acceptance import ACCEPTANCES
from engine.contracts import Part
from engine.drafters import DRAFTERS
from engine.models.pairs import LoadedPair
from engine.page.screens.offered import chosen
from engine.policies import POLICIES
from engine.race import SHAPE, checked
from engine.remote.server import Server
from engine.rounds.state_costs import measured_states
from engine.rounds.timing import is_measured
from engine.systems import SYSTEMS, System, find

PROMISES = {"tokens": "same tokens", "law": "same distribution", "lossy": "changes the text"}
OWN_CLOCK = "another server"  # the heading of a remote lane in the menus
LANES = ("vanilla", "auto")  # what the two lanes start with, and what their menus begin with: any target can race them
MIX = "mix"  # the menu's entry for a system of the visitor's own; its name then comes from a hidden field
FIELDS = {  # of the grand prix, the first one chosen at the start
    "the story": ("vanilla", "chain", "tree", "eagle", "parallel-tree", "auto", "naive"),
    "from the papers": ("vanilla", "chain", "nanogpt-tree", "naive", "medusa", "parallel-tree", "specblock", "dyspec"),
    "no training needed": ("vanilla", "chain", "tree", "lookup", "nanogpt-tree", "specinfer", "sequoia", "dyspec-threshold"),
    "one of every kind": ("vanilla", "chain", "tree", "eagle", "medusa", "dflash", "recycling", "suffix"),
    "learned drafters": ("vanilla", "medusa", "parallel-tree", "dflash", "dspark", "specblock", "eagle", "auto"),
}  # fmt: skip


def card(system: System) -> dict[str, object]:
    """What the page says about a system. `guesses`: it drafts. `limits`: depth, width and nodes are only limits of its tree."""
    said = {"guarantee": system.guarantee, "guesses": system.guesses, "limits": system.limits}
    return {**asdict(system), **said}


def card_here(system: System, pair: LoadedPair) -> dict[str, object]:
    """The card, and where they are measured already the `costs` that choose the system's drafter and its shape.

    `states` says what a tree costs a target with states beside a chain, once that is measured.
    """
    said = card(system)
    if system.guesses and pair.target.way == "states" and (found := measured_states(pair)):
        said["states"] = found.words
    if (system.counted(pair) or system.parts[0].chooses) and is_measured(pair, system.drafter):
        costs = system.costs(pair).to_dict()
        said["costs"] = {name: costs[name] for name in ("promised", "shapes")}
    return said


def cards() -> dict[str, dict[str, object]]:
    """The cards of all systems by name."""
    return {name: card(system) for name, system in SYSTEMS.items()}


def remote_card(server: Server) -> dict[str, object]:
    """What the page says about a remote lane. It has no parts and no shape of its own."""
    said = {name: getattr(server, name) for name in ("name", "title", "idea", "guarantee")}
    costs = "Whatever that server does. Its lane shows what arrives, and when."
    bare = dict.fromkeys(("drafter", "policy", "acceptance"), "") | dict.fromkeys(SHAPE, 1)
    return {
        **said,
        **bare,
        "source": "the command line of this server",
        "cost": costs,
        "guesses": False,
        "limits": False,
    }


def parts() -> dict[str, dict[str, dict[str, str]]]:
    """What every part that a system can be mixed from says about itself, by kind and name."""
    registries: dict[str, Mapping[str, type[Part]]] = {
        "drafter": DRAFTERS,
        "policy": POLICIES,
        "acceptance": ACCEPTANCES,
    }
    return {kind: {name: words(part) for name, part in names.items()} for kind, names in registries.items()}


def words(part: type[Part]) -> dict[str, str]:
    return {"title": part.title, "about": part.about, "source": part.source}


def raceable(name: object) -> System:
    """The system of that name. Raises `ValueError` when there is none, or when no race may have its shape."""
    system = find(name)
    for dial in SHAPE:
        checked(dial, getattr(system, dial))
    return system


def shape(name: object, pairs: Sequence[LoadedPair], pair: object = "") -> dict[str, int]:
    """The depth, width and nodes that the dials take with a system on the pair of that name; {} where one of both is not there.

    Those that it would race in, or its own while nothing is measured for it yet.
    """
    try:
        system, found = raceable(name), chosen(pairs, pair)
    except ValueError:
        return {}
    return system.own_shape if undecided(system, found) else system.shape(found)


def undecided(system: System, pair: LoadedPair) -> bool:
    """Whether its shape depends on what is not measured yet."""
    return bool(system.counted(pair)) and not is_measured(pair, system.drafter)


def unbroken(name: Any) -> Any:
    """The system's name without its break. What is no name is refused where systems are found."""
    return name.partition("!")[0] if isinstance(name, str) else name


def label(system: System) -> str:
    """The system's title in a menu. It says so when the system changes the text."""
    marked = system.guarantee == "lossy" and "lossy" not in system.title
    return f"{system.title} · lossy" if marked else system.title


def menu(first: str, remote: Server | None = None) -> list[tuple[str, str]]:
    """(label, name) of the systems, sorted by their promise with the lossy ones last, then another server, then the mix.

    `first` leads the systems of its own promise.
    """
    promises = list(PROMISES)
    ordered = sorted(SYSTEMS.values(), key=lambda system: (promises.index(system.guarantee), system.name != first))
    others = [(remote.title, remote.name)] if remote else []
    return [*((label(system), system.name) for system in ordered), *others, ("mix your own …", MIX)]


def headings(remote: Server | None = None) -> dict[int, str]:
    """{place of a promise's first system in the menus, counted from 1: the promise}, and the place of another server."""
    guarantees = [SYSTEMS[name].guarantee for _, name in menu(LANES[0])[:-1]]
    found = {guarantees.index(each) + 1: words for each, words in PROMISES.items() if each in guarantees}
    return found | ({len(guarantees) + 1: OWN_CLOCK} if remote else {})
