"""What every screen says when a message of its run never arrives; the messages are made up."""

from playwright.sync_api import expect

LOST = {  # the screen's run, and its words
    "view.race": ("#race [data-words]", "Part of the race was lost on its way here. Press Race again."),
    "prix.run": ("[data-prix-words]", "Part of the race was lost on its way here. Press Race again."),
    "sweep.run": ("[data-lab-words]", "Part of the results was lost on its way here"),
    "prompts.run": ("[data-lab-words]", "Part of the results was lost on its way here. No prompt was raced."),
    "pays.run": ("[data-lab-words]", "Part of the results was lost on its way here, so there is no verdict."),
}
LOSE = """path => {
  const [owner, name] = path.split(".");
  const { lab, prompts } = TreeRace;
  prompts.file.takeGallery();
  if (owner !== "view" && owner !== "prix") lab.show(owner);
  const run = TreeRace[owner][name];
  run.request({ prompt: "Once" });
  run.receive({ run: run.id, seq: 2 });
  return [run.state, run.isOpen];
}"""


def test_a_message_that_never_arrives_ends_the_run_with_a_sentence(page):
    """On one screen after the other, in one visit."""
    for path, (selector, words) in LOST.items():
        assert page.evaluate(LOSE, path) == ["done", False], path
        expect(page.locator(selector)).to_contain_text(words)
