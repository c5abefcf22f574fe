"""Mixes: which drafter, policy and acceptance rule go together. Knows parts by their names, and no system."""

from engine.acceptance import ACCEPTANCES
from engine.contracts import PROPOSAL_MODES
from engine.drafters import DRAFTERS
from engine.policies import POLICIES


def is_sound_policy_for_acceptance(policy: str, acceptance: str) -> bool:
    """Whether the policy can pick tokens as the rule needs."""
    needed = ACCEPTANCES[acceptance].required_proposal_mode
    return needed == "any" or needed in POLICIES[policy].supported_proposal_modes


def can_feed_policy(drafter: str, policy: str) -> bool:
    """Whether the drafter offers what the policy needs."""
    needs = POLICIES[policy].required_capability
    return not needs or needs in DRAFTERS[drafter].capabilities


def explain_unsound_mix(drafter: str, policy: str, acceptance: str) -> str:
    """Why policy and rule do not go together, and what goes with each of them with this drafter."""
    needed, lossy = ACCEPTANCES[acceptance].required_proposal_mode, ACCEPTANCES[acceptance].guarantee == "lossy"
    offered = " or ".join(PROPOSAL_MODES[each] for each in sorted(POLICIES[policy].supported_proposal_modes))
    policies = join_with_commas_and_or(
        [one for one in POLICIES if is_sound_policy_for_acceptance(one, acceptance) and can_feed_policy(drafter, one)]
    )
    rules = join_with_commas_and_or([each for each in ACCEPTANCES if is_sound_policy_for_acceptance(policy, each)])
    return (
        f"{policy} with {acceptance} {'has no meaning' if lossy else 'would bias the output'}: "
        f"the rule needs {PROPOSAL_MODES[needed]}, and the policy offers {offered}. "
        f"Use {policy} with {rules}, or {acceptance} with the policy {policies}."
    )


def join_with_commas_and_or(names: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
