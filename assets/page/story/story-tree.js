// The story's tree and its sentence: guesses sprout, are judged, fade or fly into the text. Knows one step, its script and a room.

TreeRace.storyTree = (() => {
  const { rescueIn } = TreeRace.stepWords;
  const { draw } = TreeRace.elements;
  const { asPercent } = TreeRace.numbers;
  const { ease, moved, shape, word, words } = TreeRace.storyParts;
  const { edgePath, nodesOf, thickness, treeLayout } = TreeRace.treeLayout;

  const FADED = 0.13; // of what was thrown away
  const CHAIN = "← a chain"; // behind the favourites, where a branch won

  /**
   * The end of the text so far, from the start of a word on.
   * @param {string} before
   * @param {(text: string) => boolean} fits
   */
  function tailOf(before, fits) {
    const flat = before.replace(/\s+/g, " ");
    for (let at = Math.max(0, flat.length - 80); at < flat.length; at++) {
      const starts = at === 0 || flat[at] === " ";
      const tail = at ? `…${flat.slice(at)}` : flat;
      if (starts && fits(tail)) return tail;
    }
    return flat.slice(-12);
  }

  /**
   * The sentence: the text so far on its line, and where each token of the burst will stand.
   * @param {StoryStage} stage
   * @param {Box} box
   * @param {number} most pixels of the text so far
   */
  function drawSentence({ svg, step, before, measure, size: largest }, box, most) {
    const pieces = step.pieces.map((piece) => piece.replace(/\s+/g, (gap) => (gap.includes("\n") ? " ⏎ " : gap)));
    const whole = pieces.join("");
    const size = Math.min(largest, (largest * (box.width - most)) / Math.max(1, measure(whole, largest)));
    const tail = tailOf(before, (text) => measure(text, size, 400) <= most);
    const y = box.y + 1.1 * largest;
    const end = box.x + measure(tail, size, 400);
    const root = word(step.texts[0]);
    const rooted = end - measure(root, size, 400);
    const rootAt = (rooted + end) / 2;
    const places = pieces.map((piece, at) => {
      const gap = piece.length - piece.trimStart().length;
      return { text: piece.trim(), x: end + measure(pieces.slice(0, at).join("") + piece.slice(0, gap), size) };
    });
    const washed = { x: end, y: y - size, width: measure(whole, size) + 4, height: 1.36 * size };
    const wash = draw("rect", { class: "wash", ...washed, rx: 5 });
    svg.append(wash, words("said", box.x, y, size, tail));
    svg.append(draw("path", { class: "rooted", d: `M${rooted} ${y + 0.2 * size}H${end}` }));
    return { y, size, rootAt, places, wash, bottom: y + 0.34 * size };
  }

  /**
   * @param {StoryStage} stage
   * @param {Box} line of the sentence
   * @param {Box} box of the tree
   * @returns {(node: number) => number} when the sweep is at a node, in seconds
   */
  function drawStoryTree(stage, line, box) {
    const { svg, step, script, small, largest, measure, animate } = stage;
    const [, check, choose, drop, join] = script.scenes;
    const sentence = drawSentence(stage, line, box.width * 0.42);
    const room = { width: box.width, height: box.height - 1.8 * small, largest, measure };
    const named = (/** @type {TreeNode} */ node) => {
      if (!node.index) return "";
      return node.verdict === "bonus" ? `${word(node.text)} · p ${asPercent(node.p)}` : word(node.text);
    };
    const { nodes, size, shrink } = treeLayout(nodesOf(step), room, named);
    const tree = draw("g", { transform: `translate(${box.x} ${box.y}) scale(${shrink})` });
    const onPage = (/** @type {number} */ x, /** @type {number} */ y) => [box.x + shrink * x, box.y + shrink * y];
    const [rootX, rootY] = onPage(nodes[0].x, nodes[0].y);
    const dip = Math.max(12, rootY - sentence.bottom);
    const stem = `M${sentence.rootAt} ${sentence.bottom}C${sentence.rootAt} ${sentence.bottom + 0.6 * dip} ${rootX} ${rootY - 0.6 * dip} ${rootX} ${rootY - nodes[0].mark}`;
    svg.append(draw("path", { class: "stem", d: stem }), tree);

    const reach = Math.max(...nodes.map((node) => node.x));
    const at = (/** @type {TreeNode} */ node) => (node.x - nodes[0].x) / Math.max(1, reach - nodes[0].x);
    const judged = (/** @type {TreeNode} */ node) => check.from + 0.1 + at(node) * (check.to - check.from - 0.3);
    const path = nodes.filter((node) => node.onPath && node.index);
    const each = (choose.to - choose.from - 0.3) / Math.max(1, path.length);
    const chosen = new Map(path.map((node, index) => [node, choose.from + 0.1 + index * each]));
    const drops = (/** @type {number} */ time) => 1 - (1 - FADED) * ease(time, drop.from, drop.to);

    const legend = "thicker line: surer guess · dashed: what the large model wanted";
    svg.append(words("heading", box.x + 2, box.y + box.height - 0.4 * small, 0.9 * small, legend));
    const lines = draw("g", { class: "edges" });
    const marks = draw("g");
    tree.append(lines, marks);
    for (const node of nodes) {
      const parent = nodes[node.parent];
      const ghost = node.verdict === "bonus";
      const born = ghost ? /** @type {number} */ (chosen.get(node)) : script.sprouts[node.index];
      const grown = born + (ghost ? 0.3 : script.shoot);
      const won = chosen.get(node);
      if (parent) {
        const line = { d: edgePath(parent, node), pathLength: 1, "data-node": node.index };
        const [kind, wide] = [ghost ? "ghost" : "", thickness(node.q, size)];
        const edge = draw("path", { class: `edge ${kind}`, "stroke-width": wide, ...line });
        const lit = draw("path", { class: `edge won ${kind}`, "stroke-width": Math.max(3, wide), ...line });
        lines.append(edge, lit);
        const lasts = won !== undefined && !ghost; // a ghost becomes a token
        if (!ghost) animate(edge, "stroke-dashoffset", (time) => 1 - ease(time, born, grown));
        animate(edge, "opacity", (time) => ease(time, born, born + 0.05) * (lasts ? 1 : drops(time)));
        animate(lit, "opacity", (time) => {
          if (won === undefined) return 0;
          return ease(time, drop.from, drop.from + 0.4) * (1 - 0.6 * ease(time, join.from, join.to));
        });
      }
      const held = draw(
        "g",
        {},
        shape(node.index ? (ghost ? "bonus" : "guess") : "root", (ghost ? 1 : 0.75) * node.mark),
      );
      const name = words("label", node.labelX - node.x, 0.35 * size, size, node.label);
      const place = { transform: moved(node.x, node.y), "data-node": node.index };
      const group = draw("g", { class: "node", ...place }, held, name);
      marks.append(group);
      const arrives = (/** @type {number} */ time) => (node.index ? ease(time, grown - 0.25, grown) : 1);
      animate(held, "transform", (time) => {
        const when = judged(node);
        const pulse = ghost ? 0 : ease(time, when - 0.15, when) - ease(time, when, when + 0.35);
        return moved(0, 0, arrives(time) * (1 + 0.35 * pulse));
      });
      animate(group, "opacity", (time) => arrives(time) * (won === undefined && node.index ? drops(time) : 1));
      if (won === undefined) continue;
      const kept = shape(ghost ? "bonus" : "kept", node.mark);
      kept.classList.add("won");
      const ring = draw("circle", { class: "ring", r: 1.4 * node.mark, "stroke-width": Math.max(2, 0.3 * node.mark) });
      held.append(kept, ring);
      animate(name, "opacity", (time) => 1 - 0.75 * ease(time, join.from, join.from + 0.3));
      animate(kept, "opacity", (time) => ease(time, drop.from, drop.from + 0.3));
      animate(ring, "opacity", (time) => ease(time, won, won + 0.2) * (1 - ease(time, join.from, join.from + 0.4)));
      animate(group, "class", (time) => (time >= drop.from ? "node won" : time >= won ? "node chosen" : "node"));
    }

    const last = rescueIn(step) && nodes[step.favourites[step.favourites.length - 1]];
    if (last) {
      const x = last.labelX + measure(last.label, size) + 0.8 * size;
      const crowded = nodes.some((other) => other.x > last.x && Math.abs(other.y - last.y) < 1.5 * size);
      if (!crowded && x + measure(CHAIN, size, 400) < room.width / shrink) {
        const name = words("heading", x, last.y + 0.35 * size, size, CHAIN);
        marks.append(name);
        const goes = (/** @type {number} */ time) => 1 - ease(time, drop.from, drop.to);
        animate(name, "opacity", (time) => ease(time, check.from - 0.3, check.from) * goes(time));
      }
    }

    const bottom = room.height / shrink;
    const wide = 0.09 * box.width;
    const band = draw("rect", { class: "band", x: -wide, y: -6, width: wide, height: bottom + 6 });
    const sweep = draw("g", { class: "sweep" }, band, draw("path", { class: "front", d: `M0 -6V${bottom}` }));
    tree.append(sweep);
    animate(sweep, "transform", (time) => {
      return moved(nodes[0].x + ease(time, check.from + 0.1, check.to - 0.2) * (reach - nodes[0].x), 0);
    });
    animate(sweep, "opacity", (time) => {
      return ease(time, check.from, check.from + 0.15) * (1 - ease(time, check.to - 0.2, check.to));
    });

    // what flies: every token of the burst, from its place in the tree to its place in the text
    const flown = path.slice(0, step.burst.length);
    const scale = (size * shrink) / sentence.size;
    for (const [index, node] of flown.entries()) {
      if (step.pieces[index] === "") continue; // such as the token that ends the text: it adds no letter
      const place = sentence.places[index];
      const text = words("flyer", 0, 0, sentence.size, place?.text || word(node.text));
      text.dataset.node = String(node.index);
      svg.append(text);
      const [x, y] = onPage(node.labelX, node.y + 0.35 * size);
      const leaves = join.from + (0.45 * index) / flown.length;
      animate(text, "transform", (time) => {
        const way = ease(time, leaves, leaves + 0.6);
        const lift = -0.12 * box.height * Math.sin(Math.PI * way);
        const [across, down] = [(place?.x ?? sentence.rootAt) - x, sentence.y - y];
        return moved(x + across * way, y + down * way + lift, scale + (1 - scale) * way);
      });
      animate(text, "opacity", (time) => ease(time, leaves - 0.05, leaves + 0.05));
    }
    animate(sentence.wash, "opacity", (time) => ease(time, join.to - 0.35, join.to));
    return (node) => judged(nodes[node]);
  }

  return { drawStoryTree };
})();
