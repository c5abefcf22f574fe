"""Telling: what a serving engine says of itself and of its guesses.

| engine | of itself | of its guesses |
| --- | --- | --- |
| llama-server | `/props` and `/slots` | `timings` of every answer; older ones draft nothing where asked for `speculative.n_max` 0 |
| vLLM | `/version` and `/metrics` | `metrics.speculative_decoding` of an answer, else counters of the whole server under `/metrics` |
| SGLang | `/get_server_info` | `sglext.spec_tokens_details` of every answer |
| others | `/v1/models` | `usage.completion_tokens_details` of an answer, where it counts predictions |

vLLM counts as a verification only what had a draft. A text has further passes, so passes are its tokens less those that were accepted.
"""

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import httpx

from engine.record.parsing import format_value_for_error, parse_json
from engine.record.served_trace import TOTALS
from engine.remote.server import (
    CONNECT,
    SILENCE,
    OpenAICompatibleServer,
    load_trusted_certificates,
    shorten_to_one_line,
)

ENGINES = {"llamacpp": "llama-server", "vllm": "vLLM", "sglang": "SGLang"}  # by what they call the owner of a model
N_MAX, TYPES = "speculative.n_max", "speculative.types"  # of llama-server: guesses a round, and their kinds
DRAFTS = TYPES.partition(".")[0]  # of one of its slots: whether it drafts
# In every request beside the text, so that nothing is kept from the other arm, and guesses and tokens are told
ASKED: dict[str, dict[str, Any]] = {
    "llama-server": {"cache_prompt": False},
    "SGLang": {"return_spec_tokens_details": True},
}
TELLS_SECONDS = ("llama-server",)
COUNTERS = tuple(f"vllm:spec_decode_num_{what}_total" for what in ("drafts", "draft_tokens", "accepted_tokens"))
WRITTEN = "vllm:generation_tokens_total"  # by the whole server
POSITIONS = "vllm:spec_decode_num_accepted_tokens_per_pos_total"  # a line for every position in a draft
CACHE = "vllm:cache_config_info"  # whose labels are settings
BEARING = ("block_size", "cache_dtype", "enable_prefix_caching")
MOST_BODY = 8_000_000  # bytes of what a server says of itself
SHOWN_MODELS = 5


@dataclass(frozen=True)
class GuessTotals:
    """The target's passes, tokens drafted for them, and those that were accepted. A pass adds a token of the target's own."""

    passes: int
    drafted: int
    accepted: int

    def __add__(self, other: "GuessTotals") -> "GuessTotals":
        return GuessTotals(self.passes + other.passes, self.drafted + other.drafted, self.accepted + other.accepted)

    def change_since(self, earlier: "GuessTotals") -> "GuessTotals":
        return GuessTotals(
            self.passes - earlier.passes, self.drafted - earlier.drafted, self.accepted - earlier.accepted
        )


@dataclass(frozen=True)
class ServerFacts:
    """What a server says of itself. `engine` and `version` are "" where it does not say. `model` is what it is asked for."""

    engine: str
    version: str
    model: str
    flags: dict[str, str | int | float | bool]


@contextmanager
def open_client(server: OpenAICompatibleServer) -> Iterator[httpx.Client]:
    """A connection for questions about the server. Raises `ValueError` with a sentence where it cannot be reached."""
    try:
        wait = httpx.Timeout(SILENCE, connect=CONNECT)
        with httpx.Client(timeout=wait, trust_env=False, verify=load_trusted_certificates()) as client:
            yield client
    except httpx.TransportError as error:
        raise ValueError(
            f"{server.label} cannot be reached ({type(error).__name__}). Is the server running, and is the address right?"
        ) from None


def fetch_text(client: httpx.Client, url: str) -> str:
    """What stands under the address, "" where nothing does. Raises `ValueError` for more than `MOST_BODY` bytes."""
    with client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
        if response.status_code != 200:
            return ""
        found = b""
        for chunk in response.iter_raw():
            found += chunk
            if len(found) > MOST_BODY:
                raise ValueError(f"{format_value_for_error(url)} has more than {MOST_BODY / 1e6:.0f} MB.")
    return found.decode("utf-8", "replace")


def fetch_json(client: httpx.Client, url: str) -> Any:
    """The JSON under the address; None where there is none."""
    text = fetch_text(client, url)
    try:
        return parse_json(text, MOST_BODY) if text else None
    except ValueError:
        return None


def look_up_nested(json_value: Any, *keys_outermost_first: str) -> Any:
    """What stands under these names, each inside of the one before; None where nothing does."""
    for name in keys_outermost_first:
        json_value = json_value.get(name) if isinstance(json_value, dict) else None
    return json_value


def add_v1_path_if_address_has_none(address: str) -> str:
    """The address of the endpoints: an address without a path gets the one that OpenAI's endpoints have."""
    scheme, mark, rest = address.partition("://")
    return f"{scheme}{mark}{rest.rstrip('/')}/v1" if mark and "/" not in rest.rstrip("/") else address


def server_root_of(server: OpenAICompatibleServer) -> str:
    """The address without the part that OpenAI's endpoints share."""
    return server.address.rstrip("/").removesuffix("/v1")


def fetch_server_facts(server: OpenAICompatibleServer) -> ServerFacts:
    """Asks the server who it is. Raises `ValueError` where it cannot be reached, and where it has several models and none was named."""
    with open_client(server) as client:
        models = look_up_nested(fetch_json(client, f"{server.address.rstrip('/')}/models"), "data")
        models = [each for each in models if isinstance(each, dict)] if isinstance(models, list) else []
        engine = next((ENGINES[owner] for each in models if (owner := each.get("owned_by")) in ENGINES), "")
        version, flags = read_version_and_flags(client, server_root_of(server), engine)
    names = [each["id"] for each in models if isinstance(each.get("id"), str)]
    if not server.model and len(names) > 1:
        listed = ", ".join(map(format_value_for_error, names[:SHOWN_MODELS])) + ", …" * (len(names) > SHOWN_MODELS)
        raise ValueError(f"{server.label} serves {len(names)} models: {listed}. Name one by --server-model.")
    return ServerFacts(engine, version, server.model or next(iter(names), ""), flags)


def request_fields_disabling_speculation(facts: ServerFacts) -> dict[str, Any] | None:
    """What a request says to get no guesses, None where none can.

    A llama-server lists the setting among a request's as long as a request may change it. Newer ones list the kind of guesses alone.
    """
    return {N_MAX: 0} if facts.engine == "llama-server" and N_MAX in facts.flags else None


def read_version_and_flags(
    client: httpx.Client, root_address: str, engine_name: str
) -> tuple[str, dict[str, str | int | float | bool]]:
    """The engine's version, and its settings as far as it tells those that bear on speed. Of a path only the last part is told."""
    wanted: tuple[str, ...] = ()
    flags: dict[str, Any] = {}
    version = None
    if engine_name == "llama-server":
        props = fetch_json(client, f"{root_address}/props")
        params = look_up_nested(props, "default_generation_settings", "params")
        flags = {"total_slots": look_up_nested(props, "total_slots")} | (params if isinstance(params, dict) else {})
        slots = fetch_json(client, f"{root_address}/slots")
        if isinstance(slots, list) and slots and isinstance(slots[0], dict):  # the kind in `/props` is not the server's
            flags |= {TYPES: None, DRAFTS: slots[0].get(DRAFTS)}
        wanted, version = ("total_slots", DRAFTS), look_up_nested(props, "build_info")
    elif engine_name == "vLLM":
        version = look_up_nested(fetch_json(client, f"{root_address}/version"), "version")
        wanted, flags = (
            ("num_spec_tokens", *BEARING),
            parse_vllm_cache_settings_and_draft_length(fetch_text(client, f"{root_address}/metrics")),
        )
    elif engine_name == "SGLang":
        told_under = (fetch_json(client, f"{root_address}/{name}") for name in ("get_server_info", "server_info"))
        flags = next((found for found in told_under if found and isinstance(found, dict)), {})
        wanted, version = ("speculative_", "tp_size", "quantization", "attention_backend"), flags.get("version")
    bearing = {name: value for name, value in flags.items() if name.startswith(wanted)}
    told = {
        name: hide_directories_if_path(value)
        for name, value in bearing.items()
        if isinstance(value, str | int | float | bool)
    }
    return hide_directories_if_path(version) if isinstance(version, str) else "", told


def hide_directories_if_path(value: Any) -> Any:
    """The value as it may be shared: of a path on the server's disk only the last part."""
    if not isinstance(value, str):
        return value
    path = value.startswith(("/", "~", "./")) or re.match(r"[A-Za-z]:\\", value)
    return shorten_to_one_line(re.split(r"[/\\]", value.rstrip("/\\"))[-1] if path else value)


def parse_vllm_cache_settings_and_draft_length(metrics_text: str) -> dict[str, str]:
    """A vLLM server's settings by name, as far as `/metrics` tells them. `num_spec_tokens` is the length of its drafts."""
    labels = re.search(rf"^{CACHE}\{{(.*)\}} \S+$", metrics_text, re.MULTILINE)
    found = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels[1])) if labels else {}
    positions = [
        int(each) for each in re.findall(rf'^{POSITIONS}\{{.*position="(\d{{1,3}})"', metrics_text, re.MULTILINE)
    ]
    return found | ({"num_spec_tokens": str(max(positions) + 1)} if positions else {})


def fetch_vllm_guess_totals(server: OpenAICompatibleServer) -> GuessTotals | None:
    """What a vLLM server has guessed since its start, for everybody. None where it tells nothing; no draft where it guesses nothing."""
    with open_client(server) as client:
        text = fetch_text(client, f"{server_root_of(server)}/metrics")
    if "vllm:" not in text:
        return None
    sums = dict.fromkeys((*COUNTERS, WRITTEN), 0.0)
    for name, value in re.findall(r"^(vllm:\w+)(?:\{.*\})? (\S+)", text, re.MULTILINE):
        if name in sums:
            sums[name] += float(value)
    verifications, drafted, accepted = (int(sums[name]) for name in COUNTERS)
    return GuessTotals(max(int(sums[WRITTEN]) - accepted, verifications), drafted, accepted)


def sum_guesses_or_none_if_any_unknown(counts: Iterable[GuessTotals | None]) -> GuessTotals | None:
    """The sum, None where any of them is not known."""
    found = list(counts)
    known = [guesses for guesses in found if guesses is not None]
    return sum(known, GuessTotals(0, 0, 0)) if len(known) == len(found) else None


def completion_tokens_of(answer: dict[str, Any]) -> int | None:
    """The tokens that an answer says it has, None where it does not say."""
    count = look_up_non_negative_integer(answer, "usage", "completion_tokens")
    return look_up_non_negative_integer(answer, "timings", "predicted_n") if count is None else count


def reported_seconds_of(answer: dict[str, Any]) -> float | None:
    """The seconds that an answer says it took, prompt included; None where it does not say."""
    parts = [look_up_nested(answer, "timings", name) for name in ("prompt_ms", "predicted_ms")]
    if not all(isinstance(each, int | float) and 0 <= each < math.inf for each in parts):
        return None
    return sum(parts) / 1000 or None


def plausible_and_clamped_guesses_of(answer: dict[str, Any]) -> GuessTotals | None:
    """What an answer says of its guesses, None where it says nothing or what cannot be. `answer` are its pieces' last values, by name.

    Tokens behind a stop may have been accepted and never came. They do not count here.
    """
    found, tokens = reported_guesses_of(answer), completion_tokens_of(answer)
    if found is None or describe_implausible_counts(answer):
        return None
    return found if tokens is None else replace(found, accepted=min(found.accepted, tokens - found.passes))


def describe_implausible_counts(answer: dict[str, Any]) -> str:
    """A sentence when the guess counts that a server reports are impossible, else ""."""
    found, tokens = reported_guesses_of(answer), completion_tokens_of(answer)
    if found is None or not any(vars(found).values()):
        return ""
    enough = tokens is None or tokens >= found.passes
    if found.passes > 0 and found.accepted <= found.drafted and enough:
        return ""
    written = "" if tokens is None else f" for {tokens:,} tokens"
    return (
        f"It says that of {found.drafted:,} drafted tokens {found.accepted:,} were accepted in {found.passes:,} verifications"
        f"{written}, which cannot be."
    )


def reported_guesses_of(answer: dict[str, Any]) -> GuessTotals | None:
    """The counts of an answer's guesses as they stand there, None where there are none."""
    if (written := look_up_non_negative_integer(answer, "timings", "predicted_n")) is not None:
        accepted = look_up_non_negative_integer(answer, "timings", "draft_n_accepted") or 0
        return GuessTotals(
            written - accepted, look_up_non_negative_integer(answer, "timings", "draft_n") or 0, accepted
        )
    for where, inner, names in (
        ("metrics", "speculative_decoding", TOTALS),
        ("sglext", "spec_tokens_details", ("spec_verify_ct", "spec_num_proposed_drafts", "spec_num_correct_drafts")),
    ):
        counts = [
            count for name in names if (count := look_up_non_negative_integer(answer, where, inner, name)) is not None
        ]
        if len(counts) == len(names):
            verifications, drafted, accepted = counts
            return GuessTotals(max((completion_tokens_of(answer) or 0) - accepted, verifications), drafted, accepted)
    details = look_up_nested(answer, "usage", "completion_tokens_details")
    accepted, rejected = (
        look_up_non_negative_integer(details, f"{kind}_prediction_tokens") or 0 for kind in ("accepted", "rejected")
    )
    if not accepted + rejected:  # engines that count none write 0 too
        return None
    return GuessTotals((completion_tokens_of(answer) or accepted) - accepted, accepted + rejected, accepted)


def look_up_non_negative_integer(json_value: Any, *keys_outermost_first: str) -> int | None:
    """The whole number under these names (`look_up_nested`), None where there is none."""
    value = look_up_nested(json_value, *keys_outermost_first)
    return value if type(value) is int and value >= 0 else None


def has_loopback_address(server: OpenAICompatibleServer) -> bool:
    """Whether the address is this machine's own."""
    host = urlsplit(server.address).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
