"""Other engines as peers: llama.cpp and OpenVINO GenAI in this process, on the pair's own weights, and servers.

Knows how each is asked, with and without its own guesses, and what it lacks. Those in this process take and give token ids. They round
sums in another order, so near-ties may fall differently. Servers are `engine.measure.server_peers`.
"""

import importlib.util
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from engine.forward.devices import cores, free_bytes
from engine.measure.server_peers import ServerPeer, said_of, server_peers
from engine.measure.ways import AnyWay
from engine.models import gguf
from engine.models.export import export_gguf, export_openvino
from engine.models.pairs import LoadedPair

LLAMA_CPP, OPENVINO = "llama.cpp", "OpenVINO GenAI"
PACKAGES = {LLAMA_CPP: ("llama_cpp", "llama-cpp-python"), OPENVINO: ("openvino_genai", "openvino-genai")}
GUESSES = (3, 5, 8)  # a round
COPIES = 5  # of the target's weights that an engine may hold, one for each way of being asked


@dataclass
class Others:
    """Ways of other engines by name. `groups` holds settings of one way, by guesses a round; `said` tells which engine is left out."""

    ways: dict[str, AnyWay] = field(default_factory=dict)
    groups: dict[str, dict[int, str]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def add_settings(self, group: str, way: Callable[..., list[int]]) -> None:
        """A way that takes guesses a round."""
        self.groups[group] = {count: f"{group}, {count} tokens" for count in GUESSES}
        self.ways |= {name: partial(way, guesses=count) for count, name in self.groups[group].items()}


def given_peers(options: Namespace, constraint: str) -> list[ServerPeer]:
    """The servers that the options of `add_peers` name. Raises `ValueError` for one alone, under a constraint, or out of reach."""
    if options.peer_server and not options.peers:
        raise ValueError(f"--peer-server {options.peer_server[0]!r} needs --peers, which it is one of.")
    if constraint and options.peers:
        raise ValueError("--peers write freely, so a constraint cannot be compared with them: leave one of them out.")
    return server_peers(options.peer_server or [])


@contextmanager
def others_beside(pair: LoadedPair, servers: list[ServerPeer]) -> Iterator[Others]:
    """The servers, and the engines whose packages are installed, with the pair's weights loaded. Their files are gone afterwards."""
    found = Others()
    there = [name for name, (module, _) in PACKAGES.items() if importlib.util.find_spec(module)]
    for name in (each for each in PACKAGES if each not in there):
        found.said.append(f"{name} is left out: `pip install {PACKAGES[name][1]}` adds it.")
    if there and pair.target.device.type != "cpu":
        found.said.append(f"{' and '.join(there)} would run on the CPU and are left out beside {pair.hardware}.")
        there = []
    with TemporaryDirectory(prefix="treerace-") as place:
        try:
            if there:
                refuse_many_copies(pair)
            for name in there:
                ADD[name](found, pair, Path(place) / name)
        except ValueError as error:
            found.said.append(f"{' and '.join(there)} cannot be compared. {error}")
            found.ways, found.groups = {}, {}
        found.ways |= {each.name: each for each in servers}
        found.said += said_of(servers)
        yield found
        found.ways.clear()


def refuse_many_copies(pair: LoadedPair) -> None:
    """Raises `ValueError` where the engines' copies of the weights do not fit."""
    wanted = 2 * COPIES * sum(weight.numel() for weight in pair.target.model.parameters())
    if wanted > free_bytes(pair.target.device):
        raise ValueError(
            f"Their copies of the weights would take {wanted / 2**30:.1f} GiB, and "
            f"{free_bytes(pair.target.device) / 2**30:.1f} GiB are free. Choose a smaller pair."
        )


def own_kind(pair: LoadedPair) -> str:
    """Which of `gguf.KINDS` keeps weights as the pair does, or nearly so."""
    return "Q8_0" if pair.dtype == "8-bit" else "F16"


def cut(pair: LoadedPair, tokens: Iterator[int], most: int) -> list[int]:
    """The tokens up to a stop token, and no more than `most`."""
    written: list[int] = []
    for token in tokens:
        written.append(token)
        if token in pair.stop_ids or len(written) == most:
            break
    return written


def add_llama_cpp(found: Others, pair: LoadedPair, folder: Path) -> None:
    """llama.cpp's own guesses in this package are copies of what followed the same tokens before."""
    import llama_cpp
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    export_gguf(pair.pair, folder)
    threads = {"n_threads": cores(), "n_threads_batch": cores(), "verbose": False}

    def opened(kind: str, **more: Any) -> Any:
        return llama_cpp.Llama(str(folder / f"target.{kind}.gguf"), n_ctx=pair.context, **threads, **more)

    def written(
        model: Any, pair: LoadedPair, prompt: list[int], tokens: int, temperature: float, guesses: int = 0
    ) -> list[int]:
        if guesses:
            model.draft_model = LlamaPromptLookupDecoding(num_pred_tokens=guesses)
        model.reset()  # or a prompt that it has read before would cost nothing
        every = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
        return cut(pair, model.generate(prompt, temp=temperature, **every), min(tokens, pair.context - len(prompt)))

    for kind in gguf.KINDS:
        found.ways[f"{LLAMA_CPP} {kind}"] = partial(written, opened(kind))
    kind = own_kind(pair)
    found.add_settings(f"{LLAMA_CPP} {kind} lookup", partial(written, opened(kind, logits_all=True)))
    found.said.append(f"{LLAMA_CPP} drafts with copies alone: its package offers no draft model.")


def add_openvino(found: Others, pair: LoadedPair, folder: Path) -> None:
    """OpenVINO GenAI guesses with the pair's draft model, where there is one, and with copies."""
    import openvino
    import openvino_genai

    export_openvino(pair.pair, folder)
    threads = {"INFERENCE_NUM_THREADS": cores()}

    def opened(kind: str, **more: Any) -> Any:
        return openvino_genai.LLMPipeline(str(folder / f"target.{kind}"), "CPU", **threads, **more)

    def written(
        model: Any, pair: LoadedPair, prompt: list[int], tokens: int, temperature: float, guesses: int = 0
    ) -> list[int]:
        asked = openvino_genai.GenerationConfig()
        asked.max_new_tokens, asked.do_sample = min(tokens, pair.context - len(prompt)), temperature > 0
        asked.eos_token_id, asked.stop_token_ids = -1, set(pair.stop_ids)  # those of its files are others
        if temperature:
            asked.temperature, asked.top_p = temperature, 1.0
        if guesses:
            asked.num_assistant_tokens, asked.max_ngram_size = guesses, NGRAM
        ids = openvino.Tensor(np.array([prompt], dtype=np.int64))
        return cut(pair, iter(model.generate(ids, asked).tokens[0]), tokens)

    for kind in gguf.KINDS:
        found.ways[f"{OPENVINO} {kind}"] = partial(written, opened(kind))
    kind = own_kind(pair)
    if pair.draft is not None:
        draft = openvino_genai.draft_model(str(folder / f"draft.{kind}"), "CPU", **threads)
        found.add_settings(f"{OPENVINO} {kind} draft model", partial(written, opened(kind, draft_model=draft)))
    found.add_settings(f"{OPENVINO} {kind} lookup", partial(written, opened(kind, prompt_lookup=True)))


NGRAM = 3  # tokens that must have stood in the text before, at most
ADD = {LLAMA_CPP: add_llama_cpp, OPENVINO: add_openvino}
