"""The study: every claim runs on something small; the figures themselves are not judged here."""

import json

import pytest

from engine.measure import study
from engine.systems import SYSTEMS
from helpers.commands import printed


@pytest.mark.slow
def test_every_claim_of_the_study_runs(capsys, monkeypatch, embedded):
    monkeypatch.setattr(study, "BUDGETS", (4, 8))
    monkeypatch.setattr(study, "DEPTHS", (2,))
    arguments = ("--prompts", "1", "--tokens", "6", "--domains", "stories", "--temperatures", "0.6")
    lines = printed(capsys, study.main, *arguments)
    claims = json.loads(lines[-1])["claims"]
    judged = claims.pop(study.EQUAL_DRAFTS)["stories"]
    assert [(row["drafts"], row["rule"]) for row in judged] == [
        (drafts, rule) for drafts, rules in study.RULES.items() for rule in rules
    ]
    assert all(1 <= row["tokens"] <= 9 and row["error"] >= 0 for row in judged)
    assert claims.keys() == study.cases(list(SYSTEMS), [0.6]).keys() and len(claims) == 5
    for rows in claims.values():
        for row in rows["stories"]:
            assert 1 <= row["tau"] <= 6 and row["nodes_used"] <= row.get("nodes", 400)
    with pytest.raises(SystemExit):
        printed(capsys, study.main, "--claims", "perpetual motion")
    assert "Unknown claim 'perpetual motion'" in capsys.readouterr().err
