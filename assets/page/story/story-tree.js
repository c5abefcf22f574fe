// The story's tree and its sentence: guesses sprout, are judged, fade or fly into the text. Knows one step, its script and a room.

TreeRace.storyTree = (() => {
  const { rescueIn } = TreeRace.stepWords;
  const { draw } = TreeRace.elements;
  const { asPercent } = TreeRace.numbers;
  const { ease, moved, setter, shape, together, word, words } = TreeRace.storyParts;
  const { edgePath, nodesOf, thickness, treeLayout } = TreeRace.treeLayout;

  const FADED = 0.13; // of what was thrown away
  const CHAIN = "← a chain"; // behind the favourites, where a branch won

  /** @typedef {ReturnType<typeof TreeRace.storyScript.scriptOf>} Script */
  /** @typedef {(time: number) => void} Actor */
  /** @typedef {{ before: string, measure: (text: string, size: number, weight?: number) => number, size: number, largest: number, small: number }} Type */

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
   * @param {SVGElement} svg
   * @param {Step} step
   * @param {Type} type
   * @param {Box} box
   * @param {number} most pixels of the text so far
   */
  function sentenceOf(svg, step, { before, measure, size: largest }, box, most) {
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
    const wash = draw("rect", {
      class: "wash",
      x: end,
      y: y - size,
      width: measure(whole, size) + 4,
      height: 1.36 * size,
      rx: 5,
    });
    svg.append(wash, words("said", box.x, y, size, tail));
    svg.append(draw("path", { class: "rooted", d: `M${rooted} ${y + 0.2 * size}H${end}` }));
    return { y, size, rootAt, places, wash, bottom: y + 0.34 * size };
  }

  /**
   * @param {SVGElement} svg
   * @param {Step} step
   * @param {Script} script
   * @param {Type} type
   * @param {Box} line of the sentence
   * @param {Box} box of the tree
   * @returns {{ act: Actor, nodes: TreeNode[], at: (node: TreeNode) => number }} `at`: the place of a node on the sweep's way, 0 to 1
   */
  function drawStoryTree(svg, step, script, type, line, box) {
    const { measure } = type;
    /** @type {Actor[]} */
    const actors = [];
    const [, check, choose, drop, join] = script.scenes;
    const sentence = sentenceOf(svg, step, type, line, box.width * 0.42);
    const room = { width: box.width, height: box.height - 1.8 * type.small, largest: type.largest, measure };
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

    const legend = "thicker line: surer guess · dashed: what the large model wanted";
    svg.append(words("heading", box.x + 2, box.y + box.height - 0.4 * type.small, 0.9 * type.small, legend));
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
        const d = edgePath(parent, node);
        const wide = thickness(node.q, size);
        const edge = draw("path", { class: ghost ? "edge ghost" : "edge", d, pathLength: 1, "stroke-width": wide });
        const lit = draw("path", {
          class: ghost ? "edge won ghost" : "edge won",
          d,
          pathLength: 1,
          "stroke-width": Math.max(3, wide),
        });
        edge.dataset.node = lit.dataset.node = String(node.index);
        lines.append(edge, lit);
        const [grows, fades, lights] = [
          setter(edge, "stroke-dashoffset"),
          setter(edge, "opacity"),
          setter(lit, "opacity"),
        ];
        actors.push((time) => {
          if (!ghost) grows(1 - ease(time, born, grown));
          const lost = won === undefined || ghost ? ease(time, drop.from, drop.to) : 0; // a ghost becomes a token
          fades(ease(time, born, born + 0.05) * (1 - lost * (1 - FADED)));
          lights(
            won === undefined ? 0 : ease(time, drop.from, drop.from + 0.4) * (1 - 0.6 * ease(time, join.from, join.to)),
          );
        });
      }
      const group = draw("g", { class: "node" });
      group.dataset.node = String(node.index);
      const held = draw("g");
      const kind = node.index ? (ghost ? "bonus" : "guess") : "root";
      held.append(shape(kind, ghost ? node.mark : 0.75 * node.mark));
      const kept = shape(ghost ? "bonus" : "kept", node.mark);
      kept.classList.add("won");
      const ring = draw("circle", { class: "ring", r: 1.4 * node.mark, "stroke-width": Math.max(2, 0.3 * node.mark) });
      const name = words("label", node.labelX - node.x, 0.35 * size, size, node.label);
      if (won !== undefined) held.append(kept, ring);
      group.append(held, name);
      marks.append(group);
      const [places, fades, keeps, rings] = [
        setter(held, "transform"),
        setter(group, "opacity"),
        setter(kept, "opacity"),
        setter(ring, "opacity"),
      ];
      const names = setter(name, "opacity");
      const colours = setter(group, "class");
      group.setAttribute("transform", moved(node.x, node.y));
      actors.push((time) => {
        const arrives = node.index ? ease(time, grown - 0.25, grown) : 1;
        const pulse = ghost
          ? 0
          : ease(time, judged(node) - 0.15, judged(node)) - ease(time, judged(node), judged(node) + 0.35);
        places(moved(0, 0, arrives * (1 + 0.35 * pulse)));
        const lost = won === undefined && node.index ? ease(time, drop.from, drop.to) : 0;
        fades(arrives * (1 - lost * (1 - FADED)));
        names(won === undefined ? 1 : 1 - 0.75 * ease(time, join.from, join.from + 0.3));
        if (won === undefined) return;
        keeps(ease(time, drop.from, drop.from + 0.3));
        rings(ease(time, won, won + 0.2) * (1 - ease(time, join.from, join.from + 0.4)));
        colours(time >= drop.from ? "node won" : time >= won ? "node chosen" : "node");
      });
    }

    const last = rescueIn(step) && nodes[step.favourites[step.favourites.length - 1]];
    if (last) {
      const x = last.labelX + measure(last.label, size) + 0.8 * size;
      const crowded = nodes.some((other) => other.x > last.x && Math.abs(other.y - last.y) < 1.5 * size);
      if (!crowded && x + measure(CHAIN, size, 400) < room.width / shrink) {
        const name = words("heading", x, last.y + 0.35 * size, size, CHAIN);
        marks.append(name);
        const shows = setter(name, "opacity");
        actors.push((time) => shows(ease(time, check.from - 0.3, check.from) * (1 - ease(time, drop.from, drop.to))));
      }
    }

    const band = draw("rect", { class: "band", y: -6, width: 0.09 * box.width, height: room.height / shrink + 6 });
    const front = draw("path", { class: "front", d: `M0 -6V${room.height / shrink}` });
    const sweep = draw("g", { class: "sweep" }, band, front);
    tree.append(sweep);
    const [goes, shows] = [setter(sweep, "transform"), setter(sweep, "opacity")];
    band.setAttribute("x", String(-0.09 * box.width));
    actors.push((time) => {
      const way = ease(time, check.from + 0.1, check.to - 0.2);
      goes(moved(nodes[0].x + way * (reach - nodes[0].x), 0));
      shows(ease(time, check.from, check.from + 0.15) * (1 - ease(time, check.to - 0.2, check.to)));
    });

    // what flies: every token of the burst, from its place in the tree to its place in the text
    const flown = path.slice(0, step.burst.length);
    for (const [index, node] of flown.entries()) {
      const place = sentence.places[index];
      if (step.pieces[index] === "") continue; // such as the token that ends the text: it adds no letter
      const text = words("flyer", 0, 0, sentence.size, place?.text || word(node.text));
      text.dataset.node = String(node.index);
      svg.append(text);
      const [x, y] = onPage(node.labelX, node.y + 0.35 * size);
      const leaves = join.from + (0.45 * index) / flown.length;
      const lands = leaves + 0.6;
      const [goes, shows] = [setter(text, "transform"), setter(text, "opacity")];
      actors.push((time) => {
        const way = ease(time, leaves, lands);
        const [toX, toY] = [place?.x ?? sentence.rootAt, sentence.y];
        const lift = -0.12 * box.height * Math.sin(Math.PI * way);
        const scale = (size * shrink) / sentence.size;
        goes(moved(x + (toX - x) * way, y + (toY - y) * way + lift, scale + (1 - scale) * way));
        shows(ease(time, leaves - 0.05, leaves + 0.05));
      });
    }
    const washes = setter(sentence.wash, "opacity");
    actors.push((time) => washes(ease(time, join.to - 0.35, join.to)));
    return { act: (time) => together(actors, time), nodes, at };
  }

  return { drawStoryTree };
})();
