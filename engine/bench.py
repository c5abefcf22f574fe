"""`python -m engine.bench`: race systems over held-out prompts; a table for people, one JSON object on the last line.

All lanes of a prompt, `generate()` included, run in one process on the same weights, interleaved; speedups are medians over prompts of
seconds-per-token ratios, prefill included.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from tqdm import tqdm

from engine.models import LoadedPair, load
from engine.race import SHAPE, Race, Settings
from engine.systems import SYSTEMS
from engine.trace import Trace

LABELS = {"tokens": "same tokens", "law": "same distribution", "lossy": "lossy"}
HELD_OUT = Path(__file__).parents[1] / "assets" / "held_out.json"


def seconds_per_token(trace: Trace) -> float:
    return trace.seconds / len(trace.tokens)


def generate_seconds(pair: LoadedPair, prompt: list[int], tokens: int, temperature: float) -> float:
    """Seconds a token of `transformers` `generate()` on the same weights."""
    model = pair.target.model
    ids = torch.tensor([prompt], device=model.device)
    sampling = {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
    start = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, **sampling)
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return (time.perf_counter() - start) / (out.shape[1] - ids.shape[1])


def run(
    pair: LoadedPair,
    prompts: list[str],
    systems: list[str],
    tokens: int,
    temperature: float,
    seed: int,
    shape: dict[str, int],
) -> dict:
    """Race `vanilla` and the systems over the prompts; the figures as the last line prints them. What `shape` does not set is each
    system's own."""
    names = ["vanilla", *(name for name in systems if name != "vanilla")]
    traces: dict[str, list[Trace]] = {name: [] for name in names}
    draft_forwards = dict.fromkeys(names, 0)
    identical: dict[str, list[bool | str]] = {name: [] for name in names}
    generated = []
    generate_seconds(pair, pair.tokenizer("Story: Once upon a time")["input_ids"], 8, temperature)  # first calls
    for prompt in tqdm(prompts, desc="prompts", unit="prompt"):
        race = Race(
            pair, Settings(prompt, tuple(names), **shape, temperature=temperature, max_new_tokens=tokens, seed=seed)
        )
        for _ in race.run():
            pass
        generated.append(generate_seconds(pair, race.lanes[0].trace.prompt_tokens, tokens, temperature))
        for lane, figures in zip(race.lanes, race.result()["lanes"], strict=True):
            traces[lane.system.name].append(lane.trace)
            identical[lane.system.name].append(figures["identical"])
            draft_forwards[lane.system.name] += figures["draft_forwards"]
    base = [seconds_per_token(trace) for trace in traces["vanilla"]]
    rows = []
    for name in systems:
        mine = traces[name]
        clock, forwards = sum(trace.seconds for trace in mine), sum(trace.forwards for trace in mine)
        rows.append(
            {
                "name": name,
                "tau": sum(len(trace.tokens) for trace in mine) / forwards,
                "speedup": statistics.median(b / seconds_per_token(trace) for b, trace in zip(base, mine, strict=True)),
                "identical": next((worst for worst in (False, "lossy", "law") if worst in identical[name]), True),
                "nodes": sum(len(step.tokens) for trace in mine for step in trace.steps) / forwards,
                "draft_forwards": draft_forwards[name] / forwards,
                "draft_ms": 1000 * sum(trace.share("draft") * trace.seconds for trace in mine) / forwards,
                "draft_share": sum(trace.share("draft") * trace.seconds for trace in mine) / clock,
                "verify_share": sum(trace.share("verify") * trace.seconds for trace in mine) / clock,
            }
        )
    return {
        "shape": shape,
        "machine": pair.hardware,
        "pair": pair.title,
        "dtype": pair.dtype,
        "temperature": temperature,
        "prompts": len(prompts),
        "tokens": tokens,
        "baseline": {
            "tokens_per_s": 1 / statistics.median(base),
            "vs_generate": statistics.median(g / b for g, b in zip(generated, base, strict=True)),
        },
        "systems": rows,
    }


def table(figures: dict) -> str:
    """The figures for people. Nodes, draft forwards and draft milliseconds are means a round (one target forward)."""
    lines = [
        f"{figures['pair']}, {figures['machine']}, {figures['dtype']}, T = {figures['temperature']:g}, "
        f"{figures['prompts']} prompts, up to {figures['tokens']} tokens",
        f"baseline: {figures['baseline']['tokens_per_s']:.0f} tokens/s, "
        f"{figures['baseline']['vs_generate']:.2f}x generate()",
        "",
        f"{'system':<18}{'tau':>6}{'speedup':>9}{'identical':>11}{'nodes':>7}{'drafts':>8}{'draft ms':>10}{'draft':>7}{'verify':>8}",
    ]
    for row in figures["systems"]:
        same = {True: "yes", False: "NO", "law": "in law", "lossy": "lossy"}[row["identical"]]
        lines.append(
            f"{row['name']:<18}{row['tau']:>6.2f}{row['speedup']:>8.2f}x{same:>11}{row['nodes']:>7.1f}{row['draft_forwards']:>8.2f}"
            f"{row['draft_ms']:>10.2f}{row['draft_share']:>7.0%}{row['verify_share']:>8.0%}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engine.bench", description=__doc__)
    held_out = json.loads(HELD_OUT.read_text(encoding="utf-8"))
    parser.add_argument(
        "--systems", default="tree", help="names or mixes (drafter/policy/rule), comma-separated, or all"
    )
    parser.add_argument("--list", action="store_true", help="name all systems, one a line with its label, and stop")
    parser.add_argument("--domain", choices=held_out, default="stories")
    parser.add_argument("--prompts", type=int, default=20, help="how many held-out prompts")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens a prompt")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    for name in SHAPE:
        parser.add_argument(f"--{name}", type=int, help="the same for all systems; each system's own when left out")
    parser.add_argument("--pair", default="embedded")
    parser.add_argument("--device", default=None, help="cpu or cuda; the best one when left out")
    options = parser.parse_args()
    if options.list:
        print(
            "\n".join(f"{system.name:<18}{LABELS[system.guarantee]:<20}{system.title}" for system in SYSTEMS.values())
        )
        return
    systems = list(SYSTEMS) if options.systems == "all" else options.systems.split(",")
    prompts = held_out[options.domain][: options.prompts]
    if not 1 <= options.prompts <= len(held_out[options.domain]):
        parser.error(f"--prompts must be between 1 and {len(held_out[options.domain])}, got {options.prompts}.")
    try:
        shape = {name: value for name in SHAPE if (value := getattr(options, name)) is not None}
        pair = load(options.pair, device=options.device)
        figures = run(pair, prompts, systems, options.tokens, options.temperature, options.seed, shape)
    except ValueError as error:
        parser.error(str(error))
    print(table(figures))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
