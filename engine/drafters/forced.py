"""Forced drafter: guesses only what a constraint leaves no choice about, such as the keys of a JSON schema. Costs no forward.

It has no guess of its own: `engine.rounds.guiding` answers for every drafter where one token alone is allowed. Without a constraint it
never guesses, and is plain decoding.
"""

from engine.contracts import COPIES
from engine.drafters.none import NoDrafter
from engine.models.advice import CONSTRAINT


class ConstraintForcedDrafter(NoDrafter):
    title = "forced tokens"
    about = "Guesses what a constraint leaves no choice about; without one it guesses nothing."
    source = "jump-forward decoding of SGLang (Zheng et al. 2024), here as guesses that are verified"
    guess_origin = COPIES
    no_guess_reason = "The constraint leaves a choice here, and only what it forces is guessed."
    required_resource = CONSTRAINT
