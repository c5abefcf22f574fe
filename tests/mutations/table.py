"""The planted mistakes: where each stands, what it changes, and the tests that must fail on it.

Most of them change the text or its law. Those marked "speed" cost speed only: token match keeps the text whatever is drafted.
Those marked "figures" change what a measurement says.
"""

from tests.mutations.guesses import GUESSES
from tests.mutations.machinery import MACHINERY

MUTATIONS = [*GUESSES, *MACHINERY]
