"""`python -m engine bench --by state`: what trees and chains cost a target with states, in time and memory.

Each node reads the text's state and what its own ancestors add to it (`engine.forward.recurrent.nodes`). Nothing is copied or replayed.

Without --target it measures random models, one of each kind of layer. All verifications of a model take turns in one process, behind
128 tokens of context; medians count. `state MB` stands until the round ends, for all nodes. `x plain` compares with a single token,
`x chain` with the chain of as many nodes.
"""

from argparse import Namespace
from functools import partial
from typing import Any

import transformers as tr

from engine.forward.recurrent.session import RecurrentSession
from engine.forward.runner import Runner
from engine.measure.options import load_given
from engine.models.loading import hardware_name
from engine.rounds.timing import binary, chain, interleaved
from engine.target import Target
from engine.tree import LARGEST_TREE

NODES = (4, 8, 16, 24)
CONTEXT = 128  # tokens before a timed round
VOCAB = 4096
ENDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
HEADS = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 1536}
DELTA = {
    "linear_num_key_heads": 8,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 128,
}
MAMBA = {"mamba_n_heads": 16, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_d_ssm": 1024}
KINDS = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
RANDOM: dict[str, tuple[Any, dict[str, Any]]] = {  # about 30 million weights each
    "mamba2": (
        tr.Mamba2Config,
        {"num_heads": 16, "head_dim": 64, "state_size": 128, "n_groups": 1, "num_hidden_layers": 16},
    ),
    "lfm2": (
        tr.Lfm2Config,
        HEADS | {"num_hidden_layers": 8, "layer_types": 2 * ["conv", "conv", "conv", "full_attention"]},
    ),
    "qwen3_5": (tr.Qwen3_5TextConfig, HEADS | DELTA | {"num_hidden_layers": 8, "layer_types": 2 * KINDS}),
    "falcon_h1": (tr.FalconH1Config, HEADS | MAMBA | {"num_hidden_layers": 6}),
}


def random_runner(family: str) -> Runner:
    """A random model of this family."""
    kind, sizes = RANDOM[family]
    return Runner(tr.AutoModelForCausalLM.from_config(kind(vocab_size=VOCAB, hidden_size=512, **ENDS, **sizes)))


def by_state(runner: Runner, repeats: int) -> list[dict]:
    """Rows by shape and number of nodes, plain decoding's first. Raises `ValueError` for a model without states."""
    if not runner.recurrent:
        raise ValueError(
            f"A {runner.config.model_type} model keeps no state, so its trees cost what --by tree tells. Name another --target."
        )
    context = min(CONTEXT, runner.context // 2)
    target = Target(runner, context + LARGEST_TREE)
    assert isinstance(target.session, RecurrentSession)
    target.prefill([token % runner.vocab for token in range(context)])
    shapes = {("plain", 1): chain(1)} | {
        (shape, nodes): made(nodes) for nodes in NODES for shape, made in (("chain", chain), ("tree", binary))
    }
    ms = interleaved(runner.device, {each: partial(target.verify, tree) for each, tree in shapes.items()}, repeats)
    rows = []
    for (shape, nodes), tree in shapes.items():
        target.verify(tree)
        taken, same = ms[shape, nodes], ms.get(("chain", nodes))
        row = {
            "shape": shape,
            "nodes": nodes,
            "leaves": nodes - len({*tree.parents[1:]}),
            "state_bytes": target.session.held_bytes,
            "verify_ms": taken,
            "vs_plain": taken / ms["plain", 1],
            "vs_chain": taken / same if same else None,
        }
        rows.append(row)
    return rows


def table(rows: list[dict]) -> str:
    lines = [f"{'shape':<7}{'nodes':>6}{'leaves':>8}{'state MB':>10}{'verify ms':>11}{'x plain':>9}{'x chain':>8}"]
    for row in rows:
        chained = "" if row["vs_chain"] is None else f"{row['vs_chain']:>8.2f}"
        form = "{shape:<7}{nodes:>6}{leaves:>8}{megabytes:>10.2f}{verify_ms:>11.2f}{vs_plain:>9.2f}"
        lines.append(form.format(**row, megabytes=row["state_bytes"] / 1e6) + chained)
    return "\n".join(lines)


def main(options: Namespace) -> dict:
    given = options.target or options.pair
    runners = [load_given(options).target] if given else [random_runner(name) for name in options.families]
    models = []
    for runner in runners:
        rows, kind = by_state(runner, options.repeats), runner.config.model_type
        weights = sum(each.numel() for each in runner.model.parameters())
        states = f"{runner.state_bytes / 1e6:.2f} MB of states a text"
        print(f"{kind}, {weights / 1e6:,.0f} million weights, {states}\n{table(rows)}")
        models.append({"model": kind, "weights": weights, "state_bytes": runner.state_bytes, "rows": rows})
    return {"machine": hardware_name(runners[0].device), "models": models}
