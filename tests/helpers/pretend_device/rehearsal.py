"""A GPU's path on the pretend device: every named system on both kinds, and of CUDA graphs, waits of the host, an out-of-memory.

`python -m helpers.pretend_device.rehearsal` in `tests/` prints what it found as JSON, a line for each kind. A kind needs a process of
its own; both are split from one that has imported what they need.
"""

import dataclasses
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import _disable_current_modes

from engine import race
from engine.custom_generate import treerace
from engine.forward import cuda_graphs, runner_gpu, session, session_gpu
from engine.forward.runner import Runner
from engine.lab.train.learned import RECIPES, drafter_config_for
from engine.models.loading import load_pair_anew
from engine.models.pairs import PAIRS, LoadedPair
from engine.named_systems import NAMED
from engine.nets import NETS, open_lazy_nets
from engine.nets.dflash import DFlash
from engine.nets.dspark import DSpark
from engine.page.screens import readiness
from engine.page.screens.device import TimeSharedDeviceWorker
from engine.page.screens.readiness import SystemPreparation
from engine.race import Lane, Race, Settings
from engine.record.costs import Costs
from engine.rounds.pair_costs import PairCosts
from engine.rounds.round_gpu import DeviceRoundRunner
from engine.sampling import Sampling
from engine.systems import format_shape, resolve_system_name
from helpers.decoding import hurry
from helpers.families import WINDOWED, sharp_model
from helpers.learned import block_net
from helpers.pairs import tiny_llama, tiny_pair
from helpers.pretend_device.graphs import CAPTURES, SYNCHRONISED, install
from helpers.pretend_device.tensors import PRETENDED, WAITS
from helpers.published.eagle3 import SPECULATORS, tensors
from helpers.published.files import write
from helpers.published.mtp import untrained

TEXT, TOKENS = "Once upon a time", 12
SEED, LAYERS = 5, 3  # of the target; DFlash and a published EAGLE read three of its layers
FIELDS = (("vanilla", "tree"), ("vanilla", "eagle"), ("chain", "auto"), ("medusa", "dspark"), ("tree", "tree"))
# By kind, what is raced. Without graphs a race takes many times as long.
TEMPERATURES = {"cuda": (0.0, 0.8), "mps": (0.8,)}
RACED = {
    "cuda": (*NAMED, "specblock:12x4x24"),
    "mps": ("vanilla", "tree", "eagle", "mtp", "sequoia"),
}
WINDOW = {"model_type": "qwen3", "layer_types": ["sliding_attention"], "sliding_window": 5}
READ = (1, 2, 3)
BLOCKS = {"dflash": DFlash, "dspark": DSpark}
# What `auto` decides by. Measured, it would not draft for so small a target.
FREE = Costs({1: 1.0}, 0.0, 0.0)


def pair_on(device: str) -> LoadedPair:
    """A tiny random pair with every drafter, in fp32. Its draft model is the target, so that long paths are accepted.

    Its greedy text soon repeats itself, so that drafters that copy have something to guess.
    """
    pair = tiny_pair(own=False)
    nets = {**pair.learned, **{name: block_net(kind, reads=READ) for name, kind in BLOCKS.items()}}
    target, draft = (Runner(tiny_llama(SEED, layers=LAYERS).to(device), use_custom_forward=False) for _ in range(2))
    nets["mtp"] = untrained(target.model)  # its head and embedding are the target's own modules
    return dataclasses.replace(
        pair,
        target=target,
        draft=draft,
        learned={name: net.to(device) for name, net in nets.items()},
    )


def raced(pair: LoadedPair, *systems: str, **settings: Any) -> Race:
    found = Race(pair, Settings(TEXT, systems, **({"max_new_tokens": TOKENS} | settings)))
    for _ in found.run():
        pass
    return found


def trees_of(pair: LoadedPair, name: str, temperature: float = 0.0) -> list:
    """The tokens and parents of every tree. Nothing warms the lane up: its clock does not count."""
    lane = Race(pair, Settings(TEXT, (name,), temperature=temperature, max_new_tokens=TOKENS)).lanes[0]
    while not lane.finished:
        lane.step()
    lane.close()
    return trees_in(lane)


def trees_in(lane: Lane) -> list:
    return [[step.tokens, step.parents] for step in lane.trace.steps]


def raced_as(pair: LoadedPair, name: str) -> str:
    """The name of the system whose trees a lane grows: another one, in its shape, where a device decides whole rounds for one that
    chooses its drafter."""
    system = resolve_system_name(name)
    there = system.promised_speedups_of_device_systems(
        pair, system.default_shape, Sampling(device=pair.target.noise_place)
    )
    best = max(there, key=there.__getitem__, default=system)
    return f"{best.name}:{format_shape(best.default_shape)}" if there else name


def published_on(device: str) -> LoadedPair:
    """The same with an EAGLE-3 drafter that others published, whose layer attends to a window, and a target for it."""
    layer = {**SPECULATORS["transformer_layer_config"], **WINDOW}
    config = {**SPECULATORS, "transformer_layer_config": layer, "eagle_aux_hidden_state_layer_ids": READ}
    model = tiny_llama(SEED, layers=LAYERS)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "eagle", config, tensors("layers.0.", head_norms=True))
        learned = {name: net.to(device) for name, net in open_lazy_nets(Path(folder), model).items()}
    return dataclasses.replace(
        pair_on(device), target=Runner(model.to(device), use_custom_forward=False), learned=learned
    )


def windowed_on(device: str, family: str) -> LoadedPair:
    """The same with a target of `helpers.families` that has a sliding window, and drafts for itself."""
    target, draft = (Runner(sharp_model(family).to(device), use_custom_forward=False) for _ in range(2))
    return dataclasses.replace(pair_on(device), target=target, draft=draft)


def races(
    pair: LoadedPair, elsewhere: LoadedPair, names: Iterable[str], grown: dict[str, list], label: str = ""
) -> dict[str, dict[str, Any]]:
    """By system and temperature: whether its text is the baseline's, and what the host waited for a round, on the lane's clock.

    `forwards` are the draft's and `levels` the tree's, the most of any round; `waits` are the most of any round, and `for` tells their
    kinds. The first round is left out, because noise is made in it. `trees` tells whether they are those of `elsewhere`, a pair on a
    CPU, where noise is the same: greedy ones, and on Apple's GPU all. All trees are kept in `grown`, under the same names.
    """
    found: dict[str, dict[str, Any]] = {}
    for temperature in TEMPERATURES[PRETENDED[0]]:
        settings = {"temperature": temperature, "max_new_tokens": TOKENS}
        plain = raced(pair, "vanilla", **settings).lanes[0].trace.tokens
        for name in names:
            alone = Race(pair, Settings(TEXT, (name,), **settings))
            alone.warm_up()
            lane, most = alone.lanes[0], {"waits": 0, "forwards": 0, "levels": 0, "for": {}}
            most["there"] = isinstance(lane.rounds, DeviceRoundRunner)
            while not lane.finished:
                WAITS.clear()
                forwards = lane.rounds.draft_forward_count
                done = next(lane.decoding)
                if lane.trace.steps:
                    most["forwards"] = max(most["forwards"], lane.rounds.draft_forward_count - forwards)
                    most["levels"] = max(most["levels"], *done.tree.depth)
                    most = most | (
                        {"waits": WAITS.total(), "for": dict(WAITS)} if WAITS.total() > most["waits"] else {}
                    )
                lane.trace.steps.append(lane.build_step_from_round(done))
                lane.finished = bool(done.end)
            lane.close()
            what = f"{name}{label} at {temperature:g}"
            found[what] = {"same": lane.trace.tokens == plain, **most}
            grown[what] = trees_in(lane)
            alike = not temperature or pair.target.noise_place is None
            if alike and name != "specblock-adapt":  # it decides by measured seconds
                with _disable_current_modes():  # a CPU needs nobody who judges, which takes most of the time
                    wanted = trees_of(elsewhere, raced_as(pair, name), temperature)
                found[what]["trees"] = grown[what] == wanted
    return found


def late_captures(pair: LoadedPair) -> dict[str, int]:
    """Graphs captured by races after everything was said to be ready."""
    ready, found = SystemPreparation(pair, TimeSharedDeviceWorker()), {}
    ready.waiting = [name for name in ready.waiting if any(name in systems for systems in FIELDS)]
    ready.prepare_opening_race()
    ready.prepare_remaining_systems()
    found["readiness"] = len(CAPTURES)
    for temperature in TEMPERATURES["cuda"]:
        for systems in FIELDS:
            before = len(CAPTURES)
            raced(pair, *systems, temperature=temperature, max_new_tokens=TOKENS // 2)
            found[f"{' and '.join(systems)} at {temperature:g}"] = len(CAPTURES) - before
    return found


@contextmanager
def out_of_memory(runner: Runner, size: int) -> Iterator[None]:
    """Forwards over `size` tokens find no memory."""

    def failing(_, given) -> None:
        if given[0].numel() == size:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    hook = runner.model.get_input_embeddings().register_forward_pre_hook(failing)
    try:
        yield
    finally:
        hook.remove()


def without_memory() -> dict[str, Any]:
    """A race while memory is short for the longer of two graphs of prompts, and one when it is there again."""
    pair = pair_on("cuda:0")
    with mock.patch.object(session_gpu, "PROMPTS", (64, 256)), out_of_memory(pair.target, 256):
        short = raced(pair, "vanilla", "eagle")
    said, before = pair.target.why_eager, len(CAPTURES)
    again = raced(pair, "vanilla", "eagle")
    return {
        "same": all(lane.trace.tokens == short.lanes[0].trace.tokens for lane in (*short.lanes, *again.lanes)),
        "eager": said,
        "captures": len(CAPTURES) - before,
    }


def shared() -> dict[str, bool]:
    """By net, whether its embedding and head are those of a target in bf16, and whether it still drafts."""
    place = f"{PRETENDED[0]}:0"
    target = tiny_llama(0).to(place, torch.bfloat16)
    found, ids = {}, torch.arange(256).repeat(4)
    ours = [each.weight.held.data_ptr() for each in (target.get_input_embeddings(), target.get_output_embeddings())]
    for name, recipe in RECIPES.items():
        if name in NETS:
            net = recipe.build_untrained_net(target, drafter_config_for(name, target), ids)
            found[name] = [net.embedding.held.data_ptr(), net.head.held.data_ptr()] == ours
            assert (
                net.apply_lm_head(net.embed_tokens(torch.zeros(2, dtype=torch.long, device=place))).dtype
                == torch.float32
            )
    return found


def failing_capture() -> str:
    """Why forwards run eagerly when a model reads a number on the host."""
    pair = pair_on("cuda:0")

    def reading(_, given, found) -> None:
        found.sum().item()

    pair.target.model.get_input_embeddings().register_forward_hook(reading)
    raced(pair, "vanilla")
    return pair.target.why_eager


def generated() -> dict[str, Any]:
    """Texts of generate() of transformers with this engine behind it, by the draft of each call, and how the model attends then."""
    model, drafts = (
        tiny_llama(0, kv_heads=1).to("cuda:0"),
        [tiny_llama(seed, kv_heads=1).to("cuda:0") for seed in (0, 1)],
    )
    ids = torch.tensor([[72, 101, 108, 108, 111]], device="cuda:0")
    asked = {"attention_mask": torch.ones_like(ids), "max_new_tokens": TOKENS, "do_sample": False}
    found, plain = {"texts": [], "attention": []}, model.generate(ids, **asked).tolist()
    for draft in (drafts[0], drafts[1], drafts[1]):
        text = model.generate(ids, custom_generate=treerace, draft=draft, system="tree", **asked)
        found["texts"].append(text.tolist() == plain)
        found["attention"].append([model.config._attn_implementation, draft.config._attn_implementation])
    return found


def loaded() -> dict[str, Any]:
    """The small embedded pair, loaded on the device that is best here: what it says of itself, and whether its texts are a CPU's.

    Noise is made alike on both where the device makes none of its own.
    """
    here, there = (
        load_pair_anew(PAIRS["small"], dtype="fp32"),
        load_pair_anew(PAIRS["small"], "cpu", quantisation="none"),
    )
    found: dict[str, Any] = {"hardware": here.hardware, "device": str(here.target.device), "same": {}}
    before = len(SYNCHRONISED)
    for temperature in TEMPERATURES["cuda"]:
        shape = {"depth": 3, "width": 2, "nodes": 6}  # or costs would be measured
        settings = {"temperature": temperature, "max_new_tokens": TOKENS // 2, **shape}
        lanes = raced(here, "vanilla", "tree", "eagle", **settings).lanes
        plain = raced(there, "vanilla", **settings).lanes[0]
        found["same"][f"{temperature:g}"] = [lane.trace.tokens == plain.trace.tokens for lane in lanes]
    return found | {"synchronised": len(SYNCHRONISED) - before}


def rehearse(kind: str) -> None:
    install(kind)
    # The same code, less to compute. The second token is drafted, which captures the draft's graphs
    for module, name, value in (
        (race, "WARM_UP_TOKENS", 2),
        (readiness, "WARM_UP_TOKENS", 2),
        (runner_gpu, "ROW_MULTIPLE", 64),
        (session, "SIZES", (1, 64)),
        (session_gpu, "PROMPTS", (256,)),
        (cuda_graphs, "WARM_UPS", 1),
    ):
        mock.patch.object(module, name, value).start()  # which fails where there is no such name any more
    place = f"{kind}:0"
    pair = pair_on(place)
    found: dict[str, Any] = {"kind": kind}
    runners = [pair.target, pair.draft]
    grown: dict[str, list] = {}
    found |= {"captures": late_captures(pair)} if kind == "cuda" else {"loaded": loaded()}
    with mock.patch.object(PairCosts, "get_or_measure_costs", lambda *_, **__: FREE):
        found |= {"races": races(pair, pair_on("cpu"), RACED[kind], grown)}
        if kind == "cuda":
            published = published_on(place), published_on("cpu")
            found["races"] |= races(*published, ("eagle", "talon", "auto"), grown, " as published")
            for family in WINDOWED:
                windowed = windowed_on(place, family)
                found["races"] |= races(windowed, windowed_on("cpu", family), ("tree", "eagle"), grown, f" of {family}")
                runners += [windowed.target, windowed.draft]
    found |= {"eager": [each.why_eager for each in runners], "shared": shared()}
    if kind == "cuda":
        found |= {"memory": without_memory(), "reading": failing_capture(), "generated": generated()}
    print(json.dumps(found), flush=True)


def main() -> None:
    torch.set_num_threads(1)  # threads do not come along when a process is split
    hurry()
    for kind in RACED:  # one after the other: the second one finds the loops that the first one compiled
        process = multiprocessing.get_context("fork").Process(target=rehearse, args=(kind,))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(process.exitcode)


if __name__ == "__main__":
    main()
