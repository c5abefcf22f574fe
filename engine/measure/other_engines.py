"""Other engines as peers: llama.cpp and OpenVINO GenAI in this process, on the pair's own weights, and servers as they were started.

Knows how each is asked, with and without its own guesses, and what it lacks. Sums are rounded in another order there, so near-ties may
fall differently. Those in this process take and give token ids; of servers llama-server, vLLM and SGLang get them, others the prompt's
text. A server's seconds are those that it tells, else those from the request to its last piece. Its texts are compared, not its tokens.
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

from engine.forward.devices import free_bytes
from engine.kernels.sharing import count_usable_cores_capped
from engine.measure.ways import GenerateFunction, WrittenText
from engine.models.export import export_gguf, export_openvino
from engine.models.gguf import writing as gguf_writing
from engine.models.gguf.files import has_gguf_suffix
from engine.models.pairs import LoadedPair
from engine.record.trace import FAILED
from engine.remote import telling
from engine.remote.server import AnswerStream, OpenAICompatibleServer

LLAMA_CPP, OPENVINO = "llama.cpp", "OpenVINO GenAI"
PACKAGES = {LLAMA_CPP: ("llama_cpp", "llama-cpp-python"), OPENVINO: ("openvino_genai", "openvino-genai")}
GUESSES = (3, 5, 8)  # a round
COPIES = 5  # of the target's weights that an engine may hold, one for each way of being asked

EVERY: dict[str, dict[str, Any]] = {  # that lets an engine draw from all tokens, as the lanes do
    "llama-server": {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0},
    "vLLM": {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0},
    "SGLang": {"top_k": -1, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0},
}


@dataclass(frozen=True)
class ServerAsPeer:
    """One server. Each call is a request and counts what the server tells of it."""

    server: OpenAICompatibleServer
    engine: str  # "" where it does not say

    @property
    def name(self) -> str:
        return f"{self.engine or 'server'} at {OpenAICompatibleServer(self.server.address).label}"

    @property
    def description(self) -> str:
        """What the table says of it."""
        given = "token ids" if self.engine in EVERY else "the prompt as text"
        clock = "its own clock" if self.engine in telling.TELLS_SECONDS else "from the request to the last piece"
        return f"{self.name} gets {given}; its seconds are {clock}. Its guesses are those that it was started with."

    def __call__(self, pair: LoadedPair, prompt_ids: list[int], max_tokens: int, temperature: float) -> WrittenText:
        """Raises `ValueError` with the server's sentence where the answer fails, and where it does not say how long it is."""
        room = min(max_tokens, pair.context - len(prompt_ids))
        asked = {"max_tokens": room, "temperature": temperature, "seed": 0, "stream_options": {"include_usage": True}}
        asked |= telling.ASKED.get(self.engine, {}) | EVERY.get(self.engine, {})
        given = prompt_ids if self.engine in EVERY else pair.tokenizer.decode(prompt_ids, skip_special_tokens=True)
        answer = AnswerStream(self.server, given, asked, reads_past_text_end=True)
        answer.start_request_in_reader_thread()
        try:
            pieces = answer.wait_for_pieces()
        finally:
            answer.close()
        if pieces[-1].end_reason == FAILED:
            raise ValueError(f"{self.name} failed as a peer. {pieces[-1].server_note}")
        if pieces[0].server_note:  # it was asked by chat
            raise ValueError(f"{self.name} cannot write behind the lanes' prompt: it has no completions endpoint.")
        if not (count := telling.completion_tokens_of(answer.reported_fields)):
            raise ValueError(f"{self.name} does not say how many tokens it wrote (usage.completion_tokens).")
        guesses, told = (
            telling.plausible_and_clamped_guesses_of(answer.reported_fields),
            telling.reported_seconds_of(answer.reported_fields),
        )
        seconds, text = (
            pieces[-1].seconds_since_request if told is None else told,
            "".join(piece.text for piece in pieces),
        )
        return WrittenText([], seconds, text, count, guesses.passes if guesses else None)


def identify_server_peers(addresses: list[str]) -> list[ServerAsPeer]:
    """The servers at the addresses. Raises `ValueError` for a wrong address, one named twice, and one that cannot be reached."""
    found: list[ServerAsPeer] = []
    for given in addresses:
        server = OpenAICompatibleServer(telling.add_v1_path_if_address_has_none(given))
        if any(server.address.rstrip("/") == each.server.address.rstrip("/") for each in found):
            raise ValueError(f"--peer-server names {server.label} twice. Name every server once.")
        about = telling.fetch_server_facts(server)
        found.append(ServerAsPeer(OpenAICompatibleServer(server.address, about.model), about.engine))
    return found


@dataclass
class PeerGenerateFunctions:
    """Ways of other engines by name. `variant_names_by_group` holds settings of one way, by guesses a round; `notes` tells which
    engine is left out.
    """

    function_by_name: dict[str, GenerateFunction] = field(default_factory=dict)
    variant_names_by_group: dict[str, dict[int, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add_variants_by_guess_count(self, group: str, generate: Callable[..., list[int]]) -> None:
        """A way that takes guesses a round."""
        self.variant_names_by_group[group] = {count: f"{group}, {count} tokens" for count in GUESSES}
        self.function_by_name |= {
            name: partial(generate, guesses=count) for count, name in self.variant_names_by_group[group].items()
        }


def server_peers_of_options(options: Namespace, constraint: str) -> list[ServerAsPeer]:
    """Identifies the server peers that the options name. Raises `ValueError` for one alone, under a constraint, or out of reach."""
    if options.peer_server and not options.peers:
        raise ValueError(f"--peer-server {options.peer_server[0]!r} needs --peers, which it is one of.")
    if constraint and options.peers:
        raise ValueError("--peers write freely, so a constraint cannot be compared with them: leave one of them out.")
    return identify_server_peers(options.peer_server or [])


@contextmanager
def export_and_load_peer_engines(pair: LoadedPair, server_peers: list[ServerAsPeer]) -> Iterator[PeerGenerateFunctions]:
    """The servers, and the engines whose packages are installed, with the pair's weights loaded. Their files are gone afterwards."""
    found = PeerGenerateFunctions()
    there = [name for name, (module, _) in PACKAGES.items() if importlib.util.find_spec(module)]
    for name in (each for each in PACKAGES if each not in there):
        found.notes.append(f"{name} is left out: `pip install {PACKAGES[name][1]}` adds it.")
    if there and pair.target.device.type != "cpu":
        found.notes.append(f"{' and '.join(there)} would run on the CPU and are left out beside {pair.hardware}.")
        there = []
    with TemporaryDirectory(prefix="treerace-") as place:
        try:
            if there:
                refuse_weight_copies_beyond_memory(pair)
            for name in there:
                ADD[name](found, pair, Path(place) / name)
        except ValueError as error:
            found.notes.append(f"{' and '.join(there)} cannot be compared. {error}")
            found.function_by_name, found.variant_names_by_group = {}, {}
        found.function_by_name |= {each.name: each for each in server_peers}
        found.notes += [each.description for each in server_peers]
        yield found
        found.function_by_name.clear()


def refuse_weight_copies_beyond_memory(pair: LoadedPair) -> None:
    """Raises `ValueError` where the engines' copies of the weights do not fit."""
    wanted = 2 * COPIES * sum(weight.numel() for weight in pair.target.model.parameters()) / 2**30
    free = free_bytes(pair.target.device) / 2**30
    if wanted > free:
        asked = f"Their copies of the weights would take {wanted:.1f} GiB, and {free:.1f} GiB are free."
        raise ValueError(f"{asked} Choose a smaller pair.")


def gguf_kind_of(pair: LoadedPair) -> str:
    """Which of `gguf_writing.KINDS` keeps weights as the pair does, or nearly so."""
    return "Q8_0" if pair.dtype == "8-bit" else "F16"


def gguf_source_of(pair: LoadedPair) -> Path | None:
    """The GGUF file that the target came from, as somebody else wrote it; None where it came from anything else."""
    return Path(pair.pair.target) if has_gguf_suffix(pair.pair.target) else None


def cut_at_stop_token(pair: LoadedPair, tokens: Iterator[int], max_tokens: int) -> list[int]:
    """The tokens up to a stop token, and no more than `max_tokens`."""
    written: list[int] = []
    for token in tokens:
        written.append(token)
        if token in pair.stop_ids or len(written) == max_tokens:
            break
    return written


def export_and_add_llama_cpp(peers: PeerGenerateFunctions, pair: LoadedPair, folder: Path) -> None:
    """llama.cpp's own guesses in this package are copies of what followed the same tokens before.

    It runs a target's own GGUF file as it is, beside those that are written of the weights where they can be.
    """
    import llama_cpp
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    own, files = gguf_source_of(pair), {}
    try:
        export_gguf(pair.pair, folder)
        files = {kind: folder / f"target.{kind}.gguf" for kind in gguf_writing.KINDS}
    except ValueError:
        if own is None:
            raise  # else the model's own file runs, and no other one can be written
    if own is not None:
        files = {own.stem: own, **files}
    threads = {
        "n_threads": count_usable_cores_capped(),
        "n_threads_batch": count_usable_cores_capped(),
        "verbose": False,
    }

    def open_model(kind: str, **more: Any) -> Any:
        return llama_cpp.Llama(str(files[kind]), n_ctx=pair.context, **threads, **more)

    def generate_tokens(
        model: Any, pair: LoadedPair, prompt: list[int], tokens: int, temperature: float, guesses: int = 0
    ) -> list[int]:
        if guesses:
            model.draft_model = LlamaPromptLookupDecoding(num_pred_tokens=guesses)
        model.reset()  # or a prompt that it has read before would cost nothing
        every = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
        return cut_at_stop_token(
            pair, model.generate(prompt, temp=temperature, **every), min(tokens, pair.context - len(prompt))
        )

    for kind in files:
        peers.function_by_name[f"{LLAMA_CPP} {kind}"] = partial(generate_tokens, open_model(kind))
    kind = gguf_kind_of(pair) if own is None else own.stem
    peers.add_variants_by_guess_count(
        f"{LLAMA_CPP} {kind} lookup", partial(generate_tokens, open_model(kind, logits_all=True))
    )
    peers.notes.append(f"{LLAMA_CPP} drafts with copies alone: its package offers no draft model.")


def export_and_add_openvino(peers: PeerGenerateFunctions, pair: LoadedPair, folder: Path) -> None:
    """OpenVINO GenAI guesses with the pair's draft model, where there is one, and with copies."""
    import openvino
    import openvino_genai

    export_openvino(pair.pair, folder)
    threads = {"INFERENCE_NUM_THREADS": count_usable_cores_capped()}

    def open_model(kind: str, **more: Any) -> Any:
        return openvino_genai.LLMPipeline(str(folder / f"target.{kind}"), "CPU", **threads, **more)

    def generate_tokens(
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
        return cut_at_stop_token(pair, iter(model.generate(ids, asked).tokens[0]), tokens)

    for kind in gguf_writing.KINDS:
        peers.function_by_name[f"{OPENVINO} {kind}"] = partial(generate_tokens, open_model(kind))
    kind = gguf_kind_of(pair)
    if pair.draft is not None:
        draft = openvino_genai.draft_model(str(folder / f"draft.{kind}"), "CPU", **threads)
        peers.add_variants_by_guess_count(
            f"{OPENVINO} {kind} draft model", partial(generate_tokens, open_model(kind, draft_model=draft))
        )
    peers.add_variants_by_guess_count(
        f"{OPENVINO} {kind} lookup", partial(generate_tokens, open_model(kind, prompt_lookup=True))
    )


NGRAM = 3  # tokens that must have stood in the text before, at most
ADD = {LLAMA_CPP: export_and_add_llama_cpp, OPENVINO: export_and_add_openvino}
