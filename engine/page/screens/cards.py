"""What the screens say about pairs, systems and their parts: cards, menus, fields to race. Knows words and names; runs nothing."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from engine.acceptance import ACCEPTANCES
from engine.contracts import GUESS_ORIGINS, SystemPart
from engine.drafters import DRAFTERS
from engine.models.pairs import EMBEDDED, OFFERED, LoadedPair, Pair
from engine.policies import POLICIES
from engine.race import SHAPE, validate_setting
from engine.record.parsing import format_value_for_error
from engine.remote.server import OpenAICompatibleServer
from engine.rounds.pair_costs import PairCosts
from engine.systems import SYSTEMS, System, resolve_system_name

PROMISES = {"tokens": "same tokens", "law": "same distribution", "lossy": "changes the text"}
KINDS: dict[str, Mapping[str, type[SystemPart]]] = {"drafter": DRAFTERS, "policy": POLICIES, "acceptance": ACCEPTANCES}
LANES = ("vanilla", "tree")  # the systems of the first recorded race: what the two lanes start with
MIX = "mix"  # the menu's entry for a system of the visitor's own; its name then comes from a hidden field
FIELDS = {  # of the grand prix, the first one chosen at the start
    "the story": ("vanilla", "chain", "tree", "eagle", "parallel-tree", "auto", "naive"),
    "from the papers": ("vanilla", "chain", "nanogpt-tree", "naive", "medusa", "parallel-tree", "specblock", "dyspec"),
    "no training needed": ("vanilla", "chain", "tree", "lookup", "nanogpt-tree", "specinfer", "sequoia", "dyspec-threshold"),
    "one of every kind": ("vanilla", "chain", "tree", "eagle", "medusa", "dflash", "recycling", "suffix"),
    "learned drafters": ("vanilla", "medusa", "parallel-tree", "dflash", "dspark", "specblock", "eagle", "auto"),
}  # fmt: skip
STAND_INS = ("auto", "lookup", "recycling", "suffix")  # any target can race them, in place of what it cannot
TAUGHT = (
    "tree",
    "eagle",
    "dspark",
    "medusa",
    "recycling",
)  # what Learn shows a tree by: the first that the pair can race
WAYS = {  # what the page says of the forward that runs
    "compiled": "Forwards are compiled for this processor. The logits behind a tree's node are plain decoding's, bit for bit.",
    "tensors": "Forwards run as tensor operations. Logits may differ in the last bits with the number of tokens in a forward.",
    "states": (
        "The target keeps states, out of which no guess can be cut. So a round changes no state: each node is given what its own path "
        "adds to the text's state, under the tree's mask. A tree costs what a chain of as many nodes costs. The state behind the "
        "accepted path is added up at its end. Nothing is replayed. Logits may differ in the last bits with the number of tokens "
        "in a forward."
    ),
    "transformers": "Forwards run through transformers. Logits may differ in the last bits with the number of tokens in a forward.",
}
CHAT = "The target has a chat template: a prompt is sent as a user's message, and the text below it is the reply."


def choose_initial_lane_systems(pair: Pair | LoadedPair) -> tuple[str, str]:
    """The names of the two systems that the lanes start with; without a draft model, two that any target can race."""
    left, right = LANES
    return (left, STAND_INS[0]) if pair.draft is None else (left, right)


def describe_model_beside_prompt(pair: LoadedPair) -> str:
    """What stands beside the prompt: what may be expected of the model."""
    if pair.pair.name in EMBEDDED:
        return "toy model: English children’s stories, Python, sums"
    return pair.title


def describe_pair(pair: LoadedPair) -> dict[str, Any]:
    """What the page's head says of the pair. A `chat` gets other prompts to try."""
    return {
        "pair": pair.title + " · chat" * pair.chat + f" · {pair.hardware} · {pair.dtype}, {pair.target.forward_kind}",
        "way": " ".join([WAYS[pair.target.forward_kind], *list_chat_template_sentences(pair)]),
        "chat": pair.chat,
        "title": pair.title,
        "lacks": map_unraceable_systems_and_parts(pair),
    }


def list_chat_template_sentences(pair: LoadedPair) -> list[str]:
    """What is said of the chat template and of how it is used; nothing of a pair that does not chat."""
    if not pair.chat:
        return []
    before = (
        [f"A system message stands before each prompt: {format_value_for_error(pair.system)}."] if pair.system else []
    )
    thinks = [] if pair.thinking is None else [f"Thinking is switched {'on' if pair.thinking else 'off'}."]
    return [CHAT, *before, *thinks]


def map_unraceable_systems_and_parts(pair: LoadedPair) -> dict[str, dict[str, dict[str, str]]]:
    """What the pair cannot race, by kind ("systems", or a kind of parts) and name, what it needs and the sentence that refuses it."""
    found = {"systems": {name: system.find_missing_requirement(pair) for name, system in SYSTEMS.items()}}
    found |= {
        kind: {name: part.find_missing_requirement(pair) for name, part in names.items()}
        for kind, names in KINDS.items()
    }
    return {kind: {name: vars(lack) for name, lack in each.items() if lack} for kind, each in found.items()}


def find_pair_by_name_or_first(pairs: Sequence[LoadedPair], pair_name: object) -> LoadedPair:
    """The pair of that name, the first one for "" and None. Raises `ValueError` for a name that none of them has."""
    if pair_name is None or pair_name == "":
        return pairs[0]
    named = {each.pair.name: each for each in pairs}
    if not isinstance(pair_name, str) or pair_name not in named:
        raise ValueError(f"There is no pair {format_value_for_error(pair_name)} here. Available: {', '.join(named)}.")
    return named[pair_name]


def describe_offered_pairs_by_size(pairs: Sequence[LoadedPair]) -> list[dict[str, Any]]:
    """The pairs that a visitor may choose from, all of them of `OFFERED`, the smallest first; none where there is no choice.

    The page's `own` is the first of `pairs`. `verify_ms`: forwards as measured here so far. The switch says the size, `pair` does not.
    `memory` is what the pair takes, in words.
    """
    if len(pairs) < 2:
        return []
    choice = []
    for each in pairs:
        name, size, said = each.pair.name, OFFERED[each.pair.name], describe_pair(each)
        about = {
            "name": name,
            "size": size,
            "title": each.title,
            "own": each is pairs[0],
            "verify_ms": each.timings.verify_ms_by_rows,
        }
        about["memory"] = f"{each.needed_bytes / 1e9:.1f} GB"
        choice.append({**about, **said, "pair": said["pair"].removeprefix(f"{size} ")})
    return sorted(choice, key=lambda each: list(OFFERED).index(each["name"]))


def describe_system(system: System) -> dict[str, object]:
    """What the page says about a system. `guesses`: it drafts. `limits`: depth, width and nodes are only limits of its tree."""
    return asdict(system) | {
        "guarantee": system.guarantee,
        "guesses": system.guesses,
        "limits": system.sizes_trees,
    }


def describe_system_on_pair(system: System, pair: LoadedPair) -> dict[str, object]:
    """The card. Once measured: `costs`, which choose drafter and shape, and what trees cost beside chains in a target with `states`."""
    said = describe_system(system)
    if system.guesses and pair.target.forward_kind == "states" and pair.timings.state_costs:
        said["states"] = pair.timings.state_costs.summary
    if (system.calibrated_mean_rounds_by_shape(pair) or system.parts[0].inner_drafter_candidates(pair)) and PairCosts(
        pair
    ).are_costs_measured(system.drafter):
        costs = system.get_or_measure_costs(pair).to_dict()
        said["costs"] = {name: costs[name] for name in ("promised", "shapes")}
    return said


def describe_all_systems() -> dict[str, dict[str, object]]:
    return {name: describe_system(system) for name, system in SYSTEMS.items()}


def describe_remote_lane(remote_server: OpenAICompatibleServer) -> dict[str, object]:
    """What the page says about a remote lane. It has no parts and no shape of its own."""
    said = {name: getattr(remote_server, name) for name in ("name", "title", "idea", "guarantee")}
    said |= dict.fromkeys(("drafter", "policy", "acceptance"), "") | dict.fromkeys(("guesses", "limits"), False)
    cost = "Whatever that server does. Its lane shows what arrives, and when."
    return said | dict.fromkeys(SHAPE, 1) | {"source": "the command line of this server", "cost": cost}


def describe_parts() -> dict[str, dict[str, dict[str, str]]]:
    """What every part that a system can be mixed from says about itself, by kind and name."""
    return {
        kind: {name: {"title": part.title, "about": part.about, "source": part.source} for name, part in names.items()}
        for kind, names in KINDS.items()
    }


def find_system_with_raceable_shape(system_name: object) -> System:
    """The system of that name. Raises `ValueError` when there is none, or when no race may have its shape."""
    system = resolve_system_name(system_name)
    for dial in SHAPE:
        validate_setting(dial, getattr(system, dial))
    return system


def choose_shape_shown_by_dials(
    system_name: object, pairs: Sequence[LoadedPair], pair_name: object = ""
) -> dict[str, int]:
    """The depth, width and nodes that the dials show for this system and pair: its shape in a race, or its own until that is measured.
    {} for unknown names.
    """
    try:
        system, found = find_system_with_raceable_shape(system_name), find_pair_by_name_or_first(pairs, pair_name)
    except ValueError:
        return {}
    return system.default_shape if is_shape_unmeasured(system, found) else system.best_shape_for(found)


def is_shape_unmeasured(system: System, pair: LoadedPair) -> bool:
    """Whether its shape depends on what is not measured yet."""
    return bool(system.calibrated_mean_rounds_by_shape(pair)) and not PairCosts(pair).are_costs_measured(system.drafter)


def remove_break_from_system_name(system_name: Any) -> Any:
    """The system's name without its break. What is no name is refused where systems are found."""
    return system_name.partition("!")[0] if isinstance(system_name, str) else system_name


def build_menu_label(system: System) -> str:
    """The system's title in a menu. It says so when the system changes the text."""
    return system.title + " · lossy" * (system.guarantee == "lossy" and "lossy" not in system.title)


def menu_group_of_system(system: System) -> str:
    """The group of the menus that the system belongs to."""
    return DRAFTERS[system.drafter].guess_origin


def build_system_menu(
    selected_system: str, remote_server: OpenAICompatibleServer | None = None
) -> list[tuple[str, str]]:
    """The menu's (label, name) entries, grouped by drafting idea, with the selected system's group first and the selected system first
    in it.
    """
    ideas = sorted(GUESS_ORIGINS, key=lambda idea: idea != menu_group_of_system(SYSTEMS[selected_system]))
    ordered = sorted(
        SYSTEMS.values(), key=lambda system: (ideas.index(menu_group_of_system(system)), system.name != selected_system)
    )
    others = [(remote_server.title, remote_server.name)] if remote_server else []
    return [*((build_menu_label(system), system.name) for system in ordered), *others, ("mix your own …", MIX)]


def map_menu_labels_to_summaries() -> dict[str, str]:
    """{label of a system in the menus: one line about it}."""
    return {build_menu_label(system): re.split(r"[.:;]", system.idea, maxsplit=1)[0] for system in SYSTEMS.values()}


def map_first_label_of_each_group_to_group(
    selected_system: str, remote_server: OpenAICompatibleServer | None = None
) -> dict[str, str]:
    """{label of an idea's first system in the menu that begins with `selected_system`: the idea}, and that of another server."""
    found: dict[str, str] = {}
    for words, name in build_system_menu(selected_system):
        if name in SYSTEMS and (idea := menu_group_of_system(SYSTEMS[name])) not in found.values():
            found[words] = idea
    return found | ({remote_server.title: "another server"} if remote_server else {})
