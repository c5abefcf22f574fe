"""The panel beside the tree: mask, node orders and the drafter's view of either lane."""

from types import SimpleNamespace

import pytest
from playwright.sync_api import expect

from helpers.page import (
    RESULT,
    choose,
    play,
    race,
    shown_step,
)
from helpers.traces import make_step, one_node
from helpers.trees import ORDERS, count_blocks, planted


@pytest.mark.looks
def test_the_tree_and_the_mask_of_the_step_are_drawn(page):
    choose(page, 1, "bigram tree")
    race(page)
    page.evaluate("TreeRace.view.go(0)")  # the last step may have no room left for guesses
    drawn = page.evaluate(
        """() => {
          const step = TreeRace.view.steps[TreeRace.view.step];
          const [tree, mask] = ['tree', 'mask'].map((name) => document.querySelector(`[data-${name}]`));
          const count = (plot, marks) => plot.querySelectorAll(marks).length;
          return {
            nodes: step.parents.length, bonus: Number(step.has_bonus),
            points: count(tree, 'g.node'), labels: count(tree, '.label'),
            rows: count(mask, '.row'), ticks: count(mask, '.row-name'),
            columns: [...mask.querySelectorAll('.row')].map((row) => row.innerHTML.split('M').length - 1),
          };
        }"""
    )
    assert drawn["nodes"] > 1 and drawn["points"] == drawn["nodes"] + drawn["bonus"] and drawn["labels"] > 0
    assert drawn["rows"] == drawn["nodes"] and set(drawn["columns"]) == {drawn["nodes"] + 1}
    assert drawn["ticks"] == drawn["nodes"]


@pytest.mark.looks
def test_either_lane_shows_its_trees(page):
    play(page, [(0, make_step(end="length")), (1, one_node(burst=[99], end="length"))], **RESULT)
    points = page.locator("[data-tree] g.node")
    assert page.evaluate("TreeRace.view.focus") == 0
    expect(points).to_have_count(7)
    page.get_by_role("radio", name="right").check(force=True)
    expect(points).to_have_count(2)
    page.get_by_role("radio", name="right").focus()
    page.keyboard.press("ArrowLeft")
    expect(points).to_have_count(7)
    page.locator(".lane.right .burst").click()
    expect(points).to_have_count(2)


@pytest.mark.looks
def test_the_drafters_view_has_a_bar_and_a_mark_for_every_guess(page):
    play(page, [(0, one_node(burst=[99], end="length")), (1, make_step(end="length"))], **RESULT)
    mask = page.get_by_role("radio", name="Attention mask")
    mask.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-guess-words]")).to_have_text("The drafter gave “big” 40 %, the target 10 %.")
    expect(page.locator("[data-guess] .scatterlayer .point")).to_have_count(5)
    expect(page.locator("[data-guess] .bars .point")).to_have_count(5)
    bars, marks = page.evaluate("document.querySelector('[data-guess]').data.map(({ x }) => x)")
    best_first = [1, 2, 4, 3, 5]
    assert bars == [make_step().q[node] for node in best_first]
    assert marks == [make_step().p[node] for node in best_first]
    expect(page.locator("[data-mask]")).to_be_hidden()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("[data-mask] .row").first).to_be_visible()


TREES = [
    [-1],
    [-1, 0, 1, 2, 3],
    [-1, 0, 0, 1, 1, 2],
    [-1, 0, 1, 0, 2, 3, 0, 5, 5, 1],
    [-1, *((i * 7919) % (i + 1) // 2 for i in range(30))],
    [-1, *(i // 2 for i in range(63))],
]


@pytest.mark.looks
def test_the_pages_orders_are_the_engines(page):
    sent = {"trees": TREES, "blocks": [2, 4, 8]}
    for parents, drawn in zip(
        TREES,
        page.evaluate(
            """({ trees, blocks }) => trees.map((parents) => Object.entries(TreeRace.maskPlot.ORDERS).map(([name, order]) => {
              const nodes = order(parents);
              return [name, nodes, blocks.map((block) => TreeRace.maskPlot.maskBlocks(parents, nodes, block).length)];
            }))""",
            sent,
        ),
        strict=True,
    ):
        assert [name for name, _, _ in drawn] == list(ORDERS)
        for name, nodes, counts in drawn:
            assert nodes == ORDERS[name](SimpleNamespace(parents=parents))
            moved = [-1, *(nodes.index(parents[node]) for node in nodes[1:])]
            assert counts == [count_blocks(planted(moved), block) for block in sent["blocks"]]


@pytest.mark.looks
def test_a_node_order_moves_the_mask_and_counts_its_blocks(page):
    wide = make_step(parents=[-1, 0, 0, 1, 2, 3], path=[], burst=[99], end="length")
    play(page, [(0, one_node(burst=[99], end="length")), (1, wide)], **RESULT)
    rows = "document.querySelectorAll('[data-mask] .row').length"
    z = "[...document.querySelectorAll('[data-mask] .row path')].map((each) => each.getAttribute('d'))"
    page.wait_for_function(f"{rows} === 6")
    assert page.locator("[data-orders] b").all_text_contents() == ["6", "5", "5"]
    before = page.evaluate(z)
    page.get_by_role("checkbox", name="more").check(force=True)
    page.get_by_role("radio", name="insertion").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name="DFS")).to_be_checked()
    assert page.evaluate(z) != before and page.evaluate(rows) == 6
    assert shown_step(page) == 0
    assert page.evaluate("document.querySelectorAll('[data-mask] .block').length") == 5
