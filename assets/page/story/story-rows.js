// The story's mask and its strip of the KV cache: rows light with the sweep, are kept, or are thrown away. Knows one step and a room.

TreeRace.storyRows = (() => {
  const { draw } = TreeRace.elements;
  const { ORDERS } = TreeRace.maskPlot;
  const { ease, moved, word, words } = TreeRace.storyParts;

  const LARGEST_CELL = 44; // pixels
  const NAMED = 15; // pixels of a row that can have a label
  const CROSSED = 12; // pixels of a row of the cache that can have a cross
  const COMMITTED = 7; // rows of the cache that stand for all earlier ones

  /**
   * The mask: every row is a guess, every mark a token that it may look at. A branch is a block; a broken mask has the arrays' order.
   * @param {StoryStage} stage
   * @param {(node: number) => number} judgedAt
   * @param {Box} box
   */
  function drawStoryMask({ svg, step, script, small, measure, animate, causal }, judgedAt, box) {
    const drop = script.scenes[3];
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
    for (const [row, node] of order.entries()) {
      let d = square(row, 0);
      for (let at = node; at >= 0; at = causal ? at - 1 : parents[at]) d += square(row, order.indexOf(at) + 1);
      const whole = { x: left, y: top + row * cell, width: (count + 1) * cell, height: cell };
      const seen = draw("path", { d });
      const group = draw("g", { class: "looks", "data-node": node }, seen, draw("rect", { class: "reach", ...whole }));
      svg.append(group);
      const isKept = node === 0 || step.path.includes(node);
      const when = judgedAt(node);
      const lit = (/** @type {number} */ time) => ease(time, when - 0.1, when + 0.1);
      const lost = (/** @type {number} */ time) => (isKept ? 0 : ease(time, drop.from, drop.to));
      animate(seen, "opacity", (time) => lit(time) * (1 - 0.85 * lost(time)));
      animate(seen, "class", (time) => {
        if (isKept && time >= drop.from) return "seen won";
        return time >= when - 0.1 && time < when + 0.45 ? "seen now" : "seen";
      });
      if (!named) continue;
      const name = words("row-name", left - 8, top + (row + 0.5) * cell + 0.35 * size, size, names[node], "end");
      group.append(name);
      animate(name, "opacity", (time) => (0.25 + 0.75 * lit(time)) * (1 - 0.75 * lost(time)));
    }
  }

  /**
   * The strip: rows of the text so far, rows of the guesses, and what becomes of them.
   * @param {StoryStage} stage
   * @param {(node: number) => number} judgedAt
   * @param {Box} box
   */
  function drawStoryCache({ svg, step, script, small, measure, animate }, judgedAt, box) {
    const [, check, , drop, join] = script.scenes;
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
    for (let node = 0; node < count; node++) {
      const x = start + node * pitch;
      const lasts = kept.indexOf(node);
      const group = draw("g", { "data-node": node }, cell("row", x));
      svg.append(group);
      if (lasts < 0 && wide >= CROSSED) {
        const [x1, x2, y1, y2] = [x + 0.2 * wide, x + 0.8 * wide, top + 0.25 * tall, top + 0.75 * tall];
        group.append(draw("path", { class: "cross", d: `M${x1} ${y1}L${x2} ${y2}M${x2} ${y1}L${x1} ${y2}` }));
      }
      const when = judgedAt(node);
      const slot = box.x + (COMMITTED + lasts) * pitch;
      const lost = (/** @type {number} */ time) => (lasts < 0 ? ease(time, drop.from, drop.to + 0.4) : 0);
      const slides = (/** @type {number} */ time) => (lasts < 0 ? 0 : ease(time, join.from + 0.2, join.to));
      animate(group, "transform", (time) => moved((slot - x) * slides(time), 0.9 * tall * lost(time)));
      animate(group, "opacity", (time) => ease(time, when - 0.1, when + 0.1) * (1 - lost(time)));
      animate(group, "class", (time) => (time < drop.from ? "tried" : lasts < 0 ? "tried lost" : "tried won"));
    }
    for (const { from, to, text } of says) {
      const line = words("told", box.x + box.width, box.y + small, small * 1.15, text, "end");
      svg.append(line);
      animate(line, "opacity", (time) => (time >= to ? 0 : ease(time, from, from + 0.25)));
    }
  }

  return { drawStoryCache, drawStoryMask };
})();
