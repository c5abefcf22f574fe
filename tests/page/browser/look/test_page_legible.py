"""Trees and masks of up to 64 nodes stay legible, measured in a real Chromium; and pointing lights all three pictures."""

import pytest
from playwright.sync_api import expect

from engine.record.trace import Step
from helpers.page import path_is_legible, until
from helpers.traces import FakeRace, bushy, make_step, one_node

SIZES = (5, 12, 40, 64)
WISH = "\u00a0p 50 %"  # of the target, in a ghost's label
# Of every label and every line in pixels of the screen: whether a line runs through a label, where letters without tails stand.
CROSSED = """() => {
  const tree = document.querySelector('[data-tree]');
  const labels = [...tree.querySelectorAll('.label')].map((label) => {
    const { left, right, top, bottom } = label.getBoundingClientRect();
    const rise = 0.28 * (bottom - top);
    return { text: label.textContent, left: left + 1, right: right - 1, top: top + rise, bottom: bottom - rise };
  });
  const crossed = [];
  for (const edge of tree.querySelectorAll('.edge')) {
    const matrix = edge.getScreenCTM();
    const length = edge.getTotalLength();
    for (let at = 0; at <= length; at += 1.5) {
      const { x, y } = edge.getPointAtLength(at).matrixTransform(matrix);
      for (const label of labels) {
        if (x > label.left && x < label.right && y > label.top && y < label.bottom) crossed.push(label.text);
      }
    }
  }
  return { labels: labels.length, crossed: [...new Set(crossed)] };
}"""


@pytest.fixture
def replayed(replay_of):
    """Opens a replay of one step with so many nodes, or of `step`, as it is when no story is told."""

    def opened(nodes: int, width: int = 1280, height: int = 720, step: Step | None = None):
        race = FakeRace([(0, one_node(burst=[99], end="length")), (1, step or bushy(nodes, end="length"))])
        assert list(race.run())
        tab = replay_of(race.to_record(), width, height, motion="reduce")
        expect(tab.locator("[data-tree] g.node")).to_have_count(nodes + 1)
        return tab

    return opened


@pytest.mark.parametrize("nodes", SIZES)
def test_labels_of_the_accepted_path_are_whole_and_no_line_crosses_a_label(replayed, nodes):
    tab = replayed(nodes)
    step = tab.evaluate("TreeRace.view.steps[0]")
    texts = {at: step["texts"][at] for at in [0, *step["path"]]} | {nodes: step["bonus_text"]}
    wanted = {at: text.replace(" ", "·") for at, text in texts.items()}
    wanted[nodes] += WISH if step["path"][-1] in step["parents"] else ""
    canvas = tab.locator("[data-tree]").bounding_box()
    for at, text in wanted.items():
        label = tab.locator(f"[data-tree] g.node[data-node='{at}'] .label")
        expect(label).to_have_text(text)
        box = label.bounding_box()
        assert box["x"] >= canvas["x"] and box["x"] + box["width"] <= canvas["x"] + canvas["width"] + 0.5
        assert box["y"] >= canvas["y"] - 1 and box["y"] + box["height"] <= canvas["y"] + canvas["height"] + 1
        assert box["height"] >= 11
    found = tab.evaluate(CROSSED)
    assert found["labels"] >= len(wanted) and found["crossed"] == []


@pytest.mark.parametrize("nodes", [12, 64])
def test_on_a_phone_and_on_a_large_screen_no_line_crosses_a_label_either(replayed, nodes):
    for room in ((390, 844), (1920, 1080)):
        found = replayed(nodes, *room).evaluate(CROSSED)
        assert found["labels"] > 6 and found["crossed"] == []


@pytest.mark.parametrize("room", [(390, 844), (1280, 720)])
@pytest.mark.parametrize("nodes", [12, 40, 64])
def test_words_of_a_path_through_ten_columns_have_letters_of_ten_pixels(replayed, nodes, room):
    step = bushy(nodes, 9, end="length")
    tab = replayed(nodes, *room, step=step)
    path_is_legible(tab.locator("[data-tree]"), step)
    assert tab.evaluate(CROSSED)["crossed"] == []


@pytest.mark.parametrize(("path", "wish"), [([1], WISH), ([1, 4], "")], ids=["disagreed", "no guess there"])
def test_where_the_target_disagreed_a_ghost_says_what_it_wanted_and_with_which_p(replayed, path, wish):
    verdicts = ["root", "accepted", "rejected", "rejected", "accepted" if 4 in path else "rejected", "unreached"]
    step = make_step(path=path, verdicts=verdicts, burst=[11, 14, 99][-1 - len(path) :], end="length")
    label = replayed(6, step=step).locator("[data-tree] .bonus .label")
    expect(label).to_have_count(1)
    assert label.text_content() == f"·fox{wish}"


THICK = """() => Object.fromEntries([...document.querySelectorAll('[data-tree] .edge:not(.kept)')].map((edge) =>
  [edge.dataset.node, parseFloat(getComputedStyle(edge).strokeWidth)]))"""


@pytest.mark.parametrize("room", [(390, 844), (1280, 720)])
def test_a_guess_hangs_on_a_line_as_thick_as_q(replayed, room):
    tab = replayed(12, *room)
    q = tab.evaluate("TreeRace.view.steps[0].q")
    drawn = {int(node): width for node, width in tab.evaluate(THICK).items()}
    assert len({q[node] for node in drawn}) > 4
    sizes = [
        width / (1 + 5 * q[node]) for node, width in drawn.items()
    ]  # the same for all, with the letters' size in it
    assert max(sizes) < 1.08 * min(sizes) and max(drawn.values()) > 2 * min(drawn.values())


def test_twice_the_screen_has_letters_almost_twice_as_large(replayed):
    size = "Number(document.querySelector('[data-tree] .label').getAttribute('font-size'))"
    small, large = (replayed(12, *room).evaluate(size) for room in ((1280, 720), (1920, 1080)))
    assert large >= 1.5 * small


def test_pictures_of_a_deep_tree_are_almost_twice_as_large_on_a_large_screen(replayed):
    """The canvas is as much higher, and so are the letters of the tree and those of the mask."""
    step = bushy(12, 10, end="length")
    found = []
    for room in ((1280, 720), (1920, 1080)):
        tab = replayed(12, *room, step=step)
        path_is_legible(tab.locator("[data-tree]"), step)
        assert tab.evaluate(CROSSED)["crossed"] == []
        size = "each => Number(document.querySelector(each).getAttribute('font-size'))"
        letters = [tab.evaluate(size, each) for each in ("[data-tree] .label", "[data-mask] text")]
        found.append([tab.locator("[data-tree]").bounding_box()["height"], *letters])
    for small, large in zip(*found, strict=True):
        assert large >= 1.7 * small


@pytest.mark.parametrize("nodes", SIZES)
def test_outlines_of_blocks_are_thinner_than_the_masks_marks(replayed, nodes):
    tab = replayed(nodes)
    width, mark = tab.evaluate(
        """() => {
          const block = document.querySelector('[data-mask] .block');
          const row = document.querySelector('[data-mask] .row .ring').getBBox();
          return [parseFloat(getComputedStyle(block).strokeWidth), row.height];
        }"""
    )
    assert width <= 1 and mark > 2 * width


def test_the_wheel_enlarges_until_every_label_is_there_and_a_double_click_shows_all(replayed):
    tab = replayed(64)
    labels = tab.locator("[data-tree] .label")
    before = labels.count()
    tab.locator("[data-tree]").hover()
    for _ in range(6):
        tab.mouse.wheel(0, -300)
    until(tab, f"document.querySelectorAll('[data-tree] .label').length > {before}")
    assert tab.evaluate(CROSSED)["crossed"] == []
    tab.locator("[data-tree]").dblclick()
    expect(labels).to_have_count(before)


PINCH = """() => {
  const tree = document.querySelector('[data-tree]');
  const { left, top } = tree.getBoundingClientRect();
  const finger = (type, pointerId, x) =>
    tree.dispatchEvent(new PointerEvent(type, { pointerId, clientX: left + x, clientY: top + 50, bubbles: true }));
  const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const place = () => [tree.querySelectorAll('.label').length, tree.querySelector('svg > g').transform.baseVal[0].matrix.e];
  const places = [place()];
  finger('pointerdown', 1, 100);
  finger('pointerdown', 2, 140);
  finger('pointermove', 2, 340);
  return frame().then(() => {
    places.push(place());
    finger('pointerup', 2, 340);
    finger('pointermove', 1, 60);
    return frame().then(() => [...places, place()]);
  });
}"""


def test_two_fingers_enlarge_and_one_moves(replayed):
    whole, enlarged, moved = replayed(64).evaluate(PINCH)
    assert enlarged[0] > whole[0] and enlarged[1] < 0
    assert moved[1] == enlarged[1] - 40


BARE = """() => [...document.querySelectorAll('[data-tree] g.node')].filter((node) => !node.querySelector('.label')).map((node) => {
  const { left, top, width, height } = node.querySelector('.reach').getBoundingClientRect();
  return [Number(node.dataset.node), left + width / 2, top + height / 2];
})"""


def test_a_guess_whose_word_has_no_room_says_it_whole_when_pointed_at_and_by_keys(replayed):
    tab = replayed(64)
    texts = [text.replace(" ", "·") for text in tab.evaluate("TreeRace.view.steps[0].texts")]
    bare = tab.evaluate(BARE)
    assert len(bare) > 40  # of marks that stand three pixels apart
    said = tab.locator("[data-race] > .tip span").first
    for node, x, y in bare[::5]:
        tab.mouse.move(x, y)
        expect(said).to_have_text(texts[node])
        expect(tab.locator("[data-mask] .row.lit")).to_have_attribute("data-node", str(node))
    tab.mouse.move(2, 2)
    tab.locator("[data-tree]").focus()
    for node in range(len(texts)):
        tab.keyboard.press("ArrowDown")
        expect(said).to_have_text(texts[node])


@pytest.mark.parametrize("room", [(390, 844), (1280, 720), (1920, 1080)])
def test_the_ring_of_a_node_that_is_pointed_at_stands_between_its_mark_and_its_word(replayed, room):
    """Squares and diamonds are wider than circles, and a larger screen has larger marks."""
    tab = replayed(12, *room)
    for kind in ("accepted", "bonus"):
        mark, ring, word = tab.evaluate(
            """kind => {
              const node = document.querySelector(`[data-tree] g.node.${kind}`);
              const mark = node.querySelector('.reach + *').getBBox();
              const corner = kind === 'bonus' ? mark.width / 2 : Math.hypot(mark.width, mark.height) / 2;
              return [corner, node.querySelector('.reach').getBBox().width / 2, node.querySelector('.label').getBBox().x];
            }""",
            kind,
        )
        assert mark < ring < word - 1


def test_pointing_at_a_node_lights_its_path_its_row_and_its_place_in_the_text(replayed):
    tab = replayed(40)
    step = tab.evaluate("TreeRace.view.steps[0]")
    second = step["path"][1]
    lit = tab.locator("[data-tree] g.node.lit")
    row = tab.locator("[data-mask] .row.lit")
    token = tab.locator(".lane.right .burst .lit")
    tip = tab.locator("[data-race] > .tip")

    def together():
        expect(lit).to_have_count(3)
        expect(row).to_have_attribute("data-node", str(second))
        expect(token).to_have_text(step["pieces"][1])

    tab.locator(f"[data-tree] g.node[data-node='{second}'] .label").hover(force=True)
    together()
    expect(tip).to_contain_text(step["texts"][second].replace(" ", "·"))
    tab.mouse.move(2, 2)
    expect(lit).to_have_count(0)
    expect(tip).to_be_hidden()
    tab.locator(
        f"[data-mask] .row[data-node='{second}'] .seen, [data-mask] .row[data-node='{second}'] .kept"
    ).first.hover(force=True)
    together()
    expect(tip).to_contain_text("→")
    tab.mouse.move(2, 2)
    tab.locator(".lane.right .burst [data-piece='1']").hover()
    together()
    tab.mouse.move(2, 2)
    expect(lit).to_have_count(0)
    for part, presses in (("[data-tree]", second + 1), ("[data-mask]", second + 1), (".lane.right [data-text]", 2)):
        tab.locator(part).focus()
        for _ in range(presses):
            tab.keyboard.press("ArrowDown")
        together()
        expect(tip).to_contain_text("draft q")
        tab.keyboard.press("ArrowUp")
        expect(row).not_to_have_attribute("data-node", str(second))
        tab.keyboard.press("Tab")
        expect(lit).to_have_count(0)
        expect(tip).to_be_hidden()
