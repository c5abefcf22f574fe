"""What every engine's file starts from: a system with its temperature, and the fields of a setting for an engine. Knows no engine."""

from collections.abc import Mapping
from dataclasses import dataclass

from engine.systems import System


@dataclass(frozen=True)
class Configuration:
    """One engine's nearest setting. `idea` says what it does, `cannot` what the engine cannot express.

    `version` is the engine's version that the code was written for, `source` what it was checked against.
    """

    engine: str
    version: str
    idea: str
    language: str
    code: str
    cannot: list[str]
    source: str


@dataclass(frozen=True)
class Mode:
    """A way of drafting that an engine has: its option's word, how people call it, and what DRAFT must be."""

    option: str
    called: str
    draft: str = ""


@dataclass(frozen=True)
class Modes:
    """An engine's ways of drafting, by the kinds of counterpart that drafters declare (`engine.contracts.SERVED`).

    For kinds that the engine lacks there is the `nearest` one.
    """

    own: Mapping[str, Mode]
    nearest: Mapping[str, str]

    def of(self, setting: "Setting") -> Mode | None:
        """The engine's way of drafting for this setting; None where it cannot draft at all."""
        kind = setting.drafts_by
        return self.own.get(self.nearest.get(kind, kind))


@dataclass(frozen=True)
class Setting:
    system: System
    temperature: float

    @property
    def drafts_by(self) -> str:
        """The kind of its drafter's counterpart."""
        return self.system.parts[0].counterpart.kind

    @property
    def grows(self) -> str:
        """The kind of its policy's counterpart."""
        return self.system.parts[1].counterpart.kind

    @property
    def accepts_by(self) -> str:
        """The kind of its rule's counterpart."""
        return self.system.parts[2].counterpart.kind

    @property
    def draws(self) -> bool:
        """Whether its policy can only draw its guesses."""
        return not self.system.parts[1].proposals & {"ranked", "top"}

    @property
    def chain(self) -> int:
        """The longest chain of guesses that the tree can hold; the root is one of its nodes."""
        return min(self.system.depth, self.system.nodes - 1)

    @property
    def width(self) -> int:
        return self.system.width if self.system.parts[1].branches else 1

    @property
    def shape(self) -> str:
        return f"depth {self.system.depth}, width {self.system.width} and {self.system.nodes} nodes"
