// The small pictures on the walk's card, each of one step or one race. Knows steps; nothing of pages and playback.

TreeRace.walkPictures = (() => {
  const { button, make } = TreeRace.elements;
  const { asNumber, counted, labelOf } = TreeRace.numbers;
  const { depthsOf } = TreeRace.steps;
  const { growthOf, timesOne } = TreeRace.curvePlot;

  const EIGHT = 8; // tokens whose time the words compare with that of one

  /**
   * @param {string} kind
   * @param {string} text
   * @param {...(string | Node)} more
   */
  function chip(kind, text, ...more) {
    const made = make("span", `cell ${kind}`, text, ...more);
    if (kind === "dropped") made.setAttribute("aria-label", `${text}, dropped`);
    return made;
  }

  /**
   * @param {string} name
   * @param {string} number
   * @param {number} percent
   */
  function shareBar(name, number, percent, hue = "") {
    const fill = make("i");
    fill.style.width = `${Math.min(100, percent)}%`;
    return make("p", `walk-bar ${hue}`, make("span", "", name), make("span", "groove", fill), make("b", "", number));
  }

  /**
   * A small table, whose rows begin with their heads.
   * @param {string[]} heads
   * @param {(string | number)[][]} rows
   */
  function tableOf(heads, rows) {
    const table = make("table", "places");
    table.createTHead().append(make("tr", "", ...heads.map((name) => make("th", "", name))));
    const made = rows.map((cells) => make("tr", "", ...cells.map((text, at) => make(at ? "td" : "th", "", `${text}`))));
    table.createTBody().append(...made);
    return table;
  }

  // The pictures by name; a page that needs a step is drawn with one.
  /** @type {Record<string, ((step: Step, about: AboutPicture) => Element[]) | undefined>} */
  const PICTURES = {
    // Tokens per forward of the races that were shown.
    forwards(_, { taus }) {
      const most = Math.max(...taus.values());
      const bars = [...taus]
        .slice(-3)
        .map(([name, tau]) => shareBar(name, asNumber(tau, 2), (100 * tau) / most, "tau"));
      return bars.length ? [make("p", "label", "Tokens a pass: how many one forward gave on average"), ...bars] : [];
    },

    // Which tokens a node may look at; two buttons go from row to row for those who do not point.
    kin(step, { node, onNode }) {
      /** @type {number[]} */
      const line = [];
      for (let at = step.parents[node]; at >= 0; at = step.parents[at]) line.unshift(at);
      const cells = [...line, node].map((at) => chip("seen", labelOf(step.texts[at])));
      const { length } = step.parents;
      /** @type {(by: number, sign: string, ariaLabel: string) => HTMLElement} */
      const turn = (by, sign, ariaLabel) => {
        const made = button("turn", () => onNode((node + by + length) % length), sign);
        return Object.assign(made, { ariaLabel });
      };
      const name = make("b", "", labelOf(step.texts[node]));
      return [
        make("p", "rows", turn(-1, "‹", "Previous row"), turn(1, "›", "Next row"), name, " sees"),
        make("p", "cells", chip("cache", "the text so far"), ...cells),
      ];
    },

    // Index, depth and position of every node.
    positions(step, { node, onNode }) {
      const depths = depthsOf(step.parents);
      const rows = depths.map((depth, index) => [labelOf(step.texts[index]), index, depth, step.position + depth]);
      const table = tableOf(["token", "index", "depth", "position"], rows);
      for (const [index, row] of [...table.tBodies[0].rows].entries()) {
        row.tabIndex = 0;
        row.classList.toggle("lit", index === node);
        for (const event of ["focus", "pointerenter"]) row.addEventListener(event, () => onNode(index));
      }
      return [table];
    },

    // What came out of the forward.
    burst(step) {
      const cells = step.path.slice(0, step.burst.length).map((node) => chip("kept", `■ ${labelOf(step.texts[node])}`));
      if (step.has_bonus) cells.push(chip("bonus", `◆ ${labelOf(step.bonus_text)}`));
      const tokens = counted(step.burst.length, "token");
      return [make("p", "cells", ...cells, make("span", "", `= ${tokens} from one forward: a burst`))];
    },

    // The cache's rows behind the text, before and after the trim.
    cache(step) {
      const kept = new Set([0, ...step.path]);
      const before = step.texts.map((text, node) => chip(kept.has(node) ? "kept" : "dropped", labelOf(text)));
      const after = [...kept].map((node) => chip("kept", labelOf(step.texts[node])));
      const text = () => chip("cache", `${step.position} rows`);
      return [
        make("p", "label", "after the forward"),
        make("p", "cells", text(), ...before),
        make("p", "label", "after the trim"),
        make("p", "cells", text(), ...after),
      ];
    },

    // How a forward's time grows with its tokens on each model, and what trees gained in the races that were shown.
    growth(_, { pairs, gains }) {
      const measured = pairs.filter(({ verify_ms: found }) => Object.keys(found).length > 1);
      if (!measured.length) return [make("p", "label", "The lines come when both models are made ready.")];
      const times = measured.map(
        ({ size, verify_ms: found }) => `${asNumber(timesOne(found, EIGHT), 1)} times as long on the ${size} model`,
      );
      const words = `Compared with one token, ${EIGHT} tokens take ${times.join(", and ")}.`;
      const most = Math.max(...[...gains.values()].map(({ speedup }) => speedup));
      const bars = [...gains].map(([size, { title, speedup }]) =>
        shareBar(`${size} model, ${title}`, `${asNumber(speedup, 1)}×`, (100 * speedup) / most, "tau"),
      );
      return [
        make("p", "label", "Measured here: time of a forward, one token is 1×"),
        growthOf(measured),
        make("p", "", words),
        ...(bars.length ? [make("p", "label", "Speed in your last races, plain decoding is 1×"), ...bars] : []),
      ];
    },
  };

  return { shareBar, tableOf, PICTURES };
})();
