"""A target whose session has a prompt committed."""

from engine.forward.runner import Runner
from engine.forward.session import Session
from engine.target import Target

PROMPT = [5, 80, 33, 12, 200, 41, 7]


def committed(runner: Runner, **options) -> Target:
    target = Target(runner, 64, options.pop("features", False))
    target.session = Session(runner, 96, bool(target.session.taps), **options)
    target.prefill(PROMPT)
    return target
