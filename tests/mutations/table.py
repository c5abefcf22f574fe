"""The planted mistakes: where each stands, what it changes, and the test that must fail on it.

Most of them change the text or its law. Those marked "speed" cost speed only: token match keeps the text whatever is drafted.
Those marked "figures" change what a measurement says. Those marked "others" let a stranger harm everybody else.
"""

from tests.mutations.comparisons import COMPARISONS
from tests.mutations.devices import DEVICES
from tests.mutations.drafts import DRAFTS
from tests.mutations.figures import FIGURES
from tests.mutations.guesses import GUESSES
from tests.mutations.machinery import MACHINERY
from tests.mutations.places import PLACES
from tests.mutations.published import PUBLISHED
from tests.mutations.records import RECORDS
from tests.mutations.states import STATES
from tests.mutations.strangers import STRANGERS

MUTATIONS = [
    *GUESSES,
    *DRAFTS,
    *MACHINERY,
    *STATES,
    *FIGURES,
    *RECORDS,
    *PUBLISHED,
    *STRANGERS,
    *DEVICES,
    *PLACES,
    *COMPARISONS,
]
