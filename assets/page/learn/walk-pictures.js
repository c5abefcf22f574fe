// The small pictures on the walk's card, each of one step or one race. Knows steps; nothing of pages and playback.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const { make } = T;

  function word(text) {
    const { dots, rest } = T.visible(text);
    return dots + rest || "…";
  }

  function depths(parents) {
    const depth = [];
    parents.forEach((parent, node) => (depth[node] = node ? depth[parent] + 1 : 0));
    return depth;
  }

  function chip(kind, text, ...more) {
    const made = make("span", `cell ${kind}`, text, ...more);
    if (kind === "dropped") made.setAttribute("aria-label", `${text}, dropped`);
    return made;
  }

  // How many guesses of a race the target never came to.
  function waste(_, { steps, taus }) {
    const verdicts = steps.flatMap((step) => step.verdicts.slice(1));
    const lost = verdicts.filter((verdict) => verdict === "unreached").length;
    if (!verdicts.length) return [];
    const words = `Of ${verdicts.length} guesses in this race, ${lost} stood behind a wrong one.`;
    return [T.bar("unseen", `${Math.round((100 * lost) / verdicts.length)} %`, (100 * lost) / verdicts.length), make("p", "", words), ...forwards(_, { taus })];
  }

  // Tokens per forward of the races that were shown.
  function forwards(_, { taus }) {
    const most = Math.max(...taus.values());
    const bars = [...taus].slice(-3).map(([name, tau]) => T.bar(name, T.number(tau, 2), (100 * tau) / most, "tau"));
    return bars.length ? [make("p", "label", "tau: tokens that one forward gave on average"), ...bars] : [];
  }

  // Which tokens a node may look at; two buttons go from row to row for those who do not point.
  function kin(step, { node, onNode }) {
    const line = [];
    for (let at = step.parents[node]; at >= 0; at = step.parents[at]) line.unshift(at);
    const cells = [...line, node].map((at) => chip("seen", word(step.texts[at])));
    const turn = (by, sign, name) => {
      const button = make("button", "turn", sign);
      Object.assign(button, { type: "button", ariaLabel: name });
      button.addEventListener("click", () => onNode((node + by + step.parents.length) % step.parents.length));
      return button;
    };
    return [
      make("p", "rows", turn(-1, "‹", "Previous row"), make("b", "", word(step.texts[node])), " sees", turn(1, "›", "Next row")),
      make("p", "cells", chip("cache", "the text so far"), ...cells),
    ];
  }

  // Index, depth and position of every node.
  function positions(step, { node, onNode }) {
    const table = make("table", "places");
    table.createTHead().append(make("tr", "", ...["token", "index", "depth", "position"].map((name) => make("th", "", name))));
    const body = table.createTBody();
    depths(step.parents).forEach((depth, index) => {
      const row = body.insertRow();
      row.tabIndex = 0;
      row.classList.toggle("lit", index === node);
      row.append(make("th", "", word(step.texts[index])));
      for (const value of [index, depth, step.position + depth]) row.append(make("td", "", String(value)));
      for (const event of ["focus", "pointerenter"]) row.addEventListener(event, () => onNode(index));
    });
    return [table];
  }

  // What came out of the forward.
  function burst(step) {
    const cells = step.path.slice(0, step.burst.length).map((node) => chip("kept", `■ ${word(step.texts[node])}`));
    if (step.has_bonus) cells.push(chip("bonus", `◆ ${word(step.bonus_text)}`));
    const tokens = step.burst.length === 1 ? "1 token" : `${step.burst.length} tokens`;
    return [make("p", "cells", ...cells, make("span", "", `= ${tokens} from one forward: a burst`))];
  }

  // The cache's rows behind the text, before and after the trim.
  function cache(step) {
    const kept = new Set([0, ...step.path]);
    const before = step.texts.map((text, node) => chip(kept.has(node) ? "kept" : "dropped", word(text)));
    const after = [...kept].map((node) => chip("kept", word(step.texts[node])));
    const text = () => chip("cache", `${step.position} rows`);
    return [
      make("p", "label", "after the forward"),
      make("p", "cells", text(), ...before),
      make("p", "label", "after the trim"),
      make("p", "cells", text(), ...after),
    ];
  }

  // A bar from 0 to 100 % with its name and its number.
  T.bar = function (name, number, percent, hue = "") {
    const fill = make("i");
    fill.style.width = `${Math.min(100, percent)}%`;
    return make("p", `walk-bar ${hue}`, make("span", "", name), make("span", "groove", fill), make("b", "", number));
  };

  T.WALK_PICTURES = { waste, forwards, kin, positions, burst, cache };
})(window.TreeRace);
