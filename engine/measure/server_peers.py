"""Servers as peers: what a running server writes behind the lanes' own prompt, with its own guesses, as it was started.

Knows addresses and answers. llama-server, vLLM and SGLang get the lanes' token ids, others the prompt's text. Seconds are those that
the server tells, else those from the request to its last piece. Texts are compared, because no server tells its tokens.
"""

from dataclasses import dataclass
from typing import Any

from engine.measure.ways import Written
from engine.models.pairs import LoadedPair
from engine.record.trace import FAILED
from engine.remote import telling
from engine.remote.server import Answer, Server

EVERY: dict[str, dict[str, Any]] = {  # that lets an engine draw from all tokens, as the lanes do
    "llama-server": {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0},
    "vLLM": {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0},
    "SGLang": {"top_k": -1, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0},
}


@dataclass(frozen=True)
class ServerPeer:
    """One server. Each call is a request and counts what the server tells of it."""

    server: Server
    engine: str  # "" where it does not say

    @property
    def name(self) -> str:
        return f"{self.engine or 'server'} at {Server(self.server.address).label}"

    def __call__(self, pair: LoadedPair, prompt: list[int], tokens: int, temperature: float) -> Written:
        """Raises `ValueError` with the server's sentence where the answer fails, and where it does not say how long it is."""
        asked = {
            "max_tokens": min(tokens, pair.context - len(prompt)),
            "temperature": temperature,
            "seed": 0,
            "stream_options": {"include_usage": True},
        }
        asked |= telling.ASKED.get(self.engine, {}) | EVERY.get(self.engine, {})
        given = prompt if self.engine in EVERY else pair.tokenizer.decode(prompt, skip_special_tokens=True)
        answer = Answer(self.server, given, asked, whole=True)
        answer.begin()
        try:
            pieces = answer.all()
        finally:
            answer.close()
        if pieces[-1].end == FAILED:
            raise ValueError(f"{self.name} failed as a peer. {pieces[-1].note}")
        if pieces[0].note:  # it was asked by chat
            raise ValueError(f"{self.name} cannot write behind the lanes' prompt: it has no completions endpoint.")
        if not (count := telling.tokens_of(answer.told)):
            raise ValueError(f"{self.name} does not say how many tokens it wrote (usage.completion_tokens).")
        guesses, told = telling.guesses_of(answer.told), telling.seconds_of(answer.told)
        seconds, text = pieces[-1].at if told is None else told, "".join(piece.text for piece in pieces)
        return Written([], seconds, text, count, guesses.passes if guesses else None)


def server_peers(addresses: list[str]) -> list[ServerPeer]:
    """The servers at the addresses. Raises `ValueError` for a wrong address, one named twice, and one that cannot be reached."""
    found: list[ServerPeer] = []
    for given in addresses:
        server = Server(telling.address_of(given))
        if any(server.address.rstrip("/") == each.server.address.rstrip("/") for each in found):
            raise ValueError(f"--peer-server names {server.label} twice. Name every server once.")
        about = telling.about(server)
        found.append(ServerPeer(Server(server.address, about.model), about.engine))
    return found


def said_of(found: list[ServerPeer]) -> list[str]:
    """What the table says of each server."""
    sentences = []
    for each in found:
        given = "token ids" if each.engine in EVERY else "the prompt as text"
        clock = "its own clock" if each.engine in telling.TELLS_SECONDS else "from the request to the last piece"
        sentences.append(
            f"{each.name} gets {given}; its seconds are {clock}. Its guesses are those that it was started with."
        )
    return sentences
