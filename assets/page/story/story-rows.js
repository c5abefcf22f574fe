// The story's mask and its strip of the KV cache: rows light with the sweep, are kept, or are thrown away. Knows one step and a room.

TreeRace.storyRows = (() => {
  const { draw } = TreeRace.elements;
  const { ORDERS } = TreeRace.maskPlot;
  const { ease, moved, setter, together, word, words } = TreeRace.storyParts;

  const LARGEST_CELL = 44; // pixels
  const NAMED = 15; // pixels of a row that can have a label
  const CROSSED = 12; // pixels of a row of the cache that can have a cross
  const COMMITTED = 7; // rows of the cache that stand for all earlier ones

  /**
   * When the sweep is at a node, in seconds.
   * @param {Scene} check
   * @param {number} share of the sweep's way
   */
  const passes = (check, share) => check.from + 0.1 + share * (check.to - check.from - 0.3);

  /**
   * The mask: every row is a guess, every mark a token that it may look at. A branch is a block; a broken mask has the arrays' order.
   * @param {StoryStage} stage
   * @param {Box} box
   */
  function drawStoryMask({ svg, step, scenes, small, measure, share, causal }, box) {
    const [, check, , drop] = scenes;
    const { parents, texts } = step;
    const count = parents.length;
    const heading = causal ? "a broken mask: guesses see other branches" : "mask: each guess sees its own branch";
    svg.append(words("heading", box.x, box.y + small, small, measure(heading, small) <= box.width ? heading : "mask"));
    const top = box.y + 1.8 * small;
    const names = texts.map(word);
    const order = (causal ? ORDERS.insertion : ORDERS.dfs)(parents);
    const rough = Math.min(LARGEST_CELL, (box.height - 1.8 * small) / count, box.width / (count + 1));
    const named = rough >= NAMED;
    const size = Math.min(small * 1.1, 0.72 * rough);
    const labels = named ? Math.min(0.4 * box.width, Math.max(...names.map((name) => measure(name, size))) + 10) : 0;
    const cell = Math.min(rough, (box.width - labels) / (count + 1));
    const left = box.x + labels;
    const inset = Math.min(1.5, 0.12 * cell);
    const square = (/** @type {number} */ row, /** @type {number} */ column) => {
      const side = cell - 2 * inset;
      return `M${(left + column * cell + inset).toFixed(1)} ${(top + row * cell + inset).toFixed(1)}h${side}v${side}h${-side}z`;
    };
    const columns = Array.from({ length: count + 1 }, (_, column) => column);
    svg.append(
      draw("path", {
        class: "cells",
        d: parents.flatMap((_, row) => columns.map((column) => square(row, column))).join(""),
      }),
    );
    const kept = new Set([0, ...step.path]);
    /** @type {((time: number) => void)[]} */
    const actors = [];
    for (const [row, node] of order.entries()) {
      let d = square(row, 0);
      for (let at = node; at >= 0; at = causal ? at - 1 : parents[at]) d += square(row, order.indexOf(at) + 1);
      const whole = { x: left, y: top + row * cell, width: (count + 1) * cell, height: cell };
      const seen = draw("path", { class: "seen", d });
      const group = draw("g", { class: "looks" }, seen, draw("rect", { class: "reach", ...whole }));
      group.dataset.node = String(node);
      svg.append(group);
      const name = named
        ? words("row-name", left - 8, top + (row + 0.5) * cell + 0.35 * size, size, names[node], "end")
        : null;
      if (name) group.append(name);
      const lights = setter(seen, "opacity");
      const colours = setter(seen, "class");
      const shows = name && setter(name, "opacity");
      const when = passes(check, share(node));
      actors.push((time) => {
        const lit = ease(time, when - 0.1, when + 0.1);
        const lost = kept.has(node) ? 0 : ease(time, drop.from, drop.to);
        lights(lit * (1 - 0.85 * lost));
        colours(
          kept.has(node) && time >= drop.from
            ? "seen won"
            : time < when + 0.45 && time >= when - 0.1
              ? "seen now"
              : "seen",
        );
        shows?.((0.25 + 0.75 * lit) * (1 - 0.75 * lost));
      });
    }
    return (/** @type {number} */ time) => together(actors, time);
  }

  /**
   * The strip: rows of the text so far, rows of the guesses, and what becomes of them.
   * @param {StoryStage} stage
   * @param {Box} box
   */
  function drawStoryCache({ svg, step, scenes, small, measure, share }, box) {
    const [, check, , drop, join] = scenes;
    const count = step.parents.length;
    const kept = [0, ...step.path];
    const guesses = count === 2 ? "1 guess" : `${count - 1} guesses`;
    const says = [
      { from: check.from + 0.3, to: drop.from, text: `${count} rows tried: last token + ${guesses}` },
      { from: drop.from, to: Infinity, text: `${kept.length} kept, ${count - kept.length} thrown away` },
    ];
    const room = box.width - small - Math.max(...says.map(({ text }) => measure(text, small * 1.15)));
    const rows = `${step.position} rows of the text`;
    const headings = [`KV cache, the large model's memory · ${rows}`, `KV cache · ${rows}`];
    const heading = headings.find((each) => measure(each, small) <= room) ?? "KV cache";
    svg.append(words("heading", box.x, box.y + small, small, heading));
    const top = box.y + 1.7 * small;
    const tall = Math.max(14, Math.min(2.2 * small, box.height - 3.3 * small));
    const pitch = Math.min(2.4 * small, box.width / (COMMITTED + count + 1));
    const wide = Math.max(2, 0.78 * pitch);
    /** @type {(className: string, x: number) => SVGElement} */
    const cell = (className, x) =>
      draw("rect", { class: className, x, y: top, width: wide, height: tall, rx: Math.min(4, wide / 4) });
    for (let at = 0; at < COMMITTED; at++) {
      const old = cell("committed", box.x + at * pitch);
      old.setAttribute("opacity", String(0.25 + (0.75 * (at + 1)) / COMMITTED));
      svg.append(old);
    }
    const start = box.x + (COMMITTED + 0.5) * pitch;
    /** @type {((time: number) => void)[]} */
    const actors = [];
    for (let node = 0; node < count; node++) {
      const x = start + node * pitch;
      const lasts = kept.indexOf(node);
      const group = draw("g", { class: "tried" }, cell("row", x));
      group.dataset.node = String(node);
      if (lasts < 0 && wide >= CROSSED)
        group.append(
          draw("path", {
            class: "cross",
            d: `M${x + 0.2 * wide} ${top + 0.25 * tall}L${x + 0.8 * wide} ${top + 0.75 * tall}M${x + 0.8 * wide} ${top + 0.25 * tall}L${x + 0.2 * wide} ${top + 0.75 * tall}`,
          }),
        );
      svg.append(group);
      const [goes, shows, colours] = [setter(group, "transform"), setter(group, "opacity"), setter(group, "class")];
      const when = passes(check, share(node));
      const slot = box.x + (COMMITTED + lasts) * pitch;
      actors.push((time) => {
        const lost = lasts < 0 ? ease(time, drop.from, drop.to + 0.4) : 0;
        const slides = lasts < 0 ? 0 : ease(time, join.from + 0.2, join.to);
        goes(moved((slot - x) * slides, 0.9 * tall * lost));
        shows(ease(time, when - 0.1, when + 0.1) * (1 - lost));
        colours(time < drop.from ? "tried" : lasts < 0 ? "tried lost" : "tried won");
      });
    }
    const told = says.map(({ from, to, text }) => {
      const line = words("told", box.x + box.width, box.y + small, small * 1.15, text, "end");
      svg.append(line);
      const shows = setter(line, "opacity");
      return (/** @type {number} */ time) => shows(time >= to ? 0 : ease(time, from, from + 0.25));
    });
    return (/** @type {number} */ time) => together([...actors, ...told], time);
  }

  return { drawStoryCache, drawStoryMask };
})();
