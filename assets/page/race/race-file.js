// The race that is shown, as a race file and as a link; and the keepsake: what a visitor had set and that race outlive a reload, with which
// the page answers a lost server. Knows the view's systems and steps, the race's events and the form's fields; writes no file, puts nothing
// back.

TreeRace.raceFile = (() => {
  const { withStore } = TreeRace.elements;
  const { onRun } = TreeRace.runs;
  const { LONGEST, SETTINGS, linkTo, writeForm } = TreeRace.screens;

  const LONGEST_NAME = 48;
  const STORED = "treerace";

  // A Record in JSON (engine/record/race_file.py). A race that was stopped holds the steps so far.
  /** @param {RaceView} race */
  function raceFile({ systems, lanes, third, recorded, result }) {
    const all = systems.map((system, index) => ({ system, steps: lanes[index].steps }));
    if (third?.system) all.splice(1, 0, { system: third.system, steps: third.steps });
    const filed = all.map(({ system: { title, idea, guarantee, costs, trace }, steps }) => {
      const traced = steps.map(({ t: _, has_bonus: __, ...step }) => step); // the page has added those two
      return { title, idea, guarantee, costs, trace: { ...trace, steps: traced } };
    });
    const today = new Date().toISOString().slice(0, 10);
    const runs = result && result.runs.length > 1 ? result.runs : [];
    return JSON.stringify({ lanes: filed, recorded: recorded || today, runs, busy: Boolean(result?.busy) });
  }

  /**
   * The settings of that race, as the page's address takes them; "" when the prompt is too long for one.
   * @param {{ systems: RacedSystem[] }} race
   * @param {string} [pair] the name of its pair, where visitors choose one
   */
  function raceLink({ systems: [left, right] }, pair) {
    const { prompt, depth, width, nodes, temperature, max_new_tokens: tokens, seed, constraint } = right.trace;
    const bound = { seed, ...(constraint ? { constraint } : {}), ...(pair ? { pair } : {}), prompt };
    const link = linkTo({ left: left.name, right: right.name, depth, width, nodes, temperature, tokens, ...bound });
    return link.length > LONGEST ? "" : link;
  }

  /** @param {{ systems: RacedSystem[] }} race */
  function raceName({ systems: [, right] }) {
    const words = `${right.name} ${right.trace.prompt}`.toLowerCase().match(/[a-z0-9]+/g) || [];
    return ["treerace", ...words].join("-").slice(0, LONGEST_NAME).replace(/-$/, "");
  }

  class Keepsake {
    /** @type {Record<string, any> | null} what the form held when a race was last asked for */
    form = null;
    /** @type {RaceMessage[]} of the race that is shown */
    messages = [];

    constructor() {
      onRun("race", (message) => {
        if (message.start) this.messages = [];
        this.messages.push(message);
      });
      TreeRace.view.addEventListener("asked", (event) => {
        this.form = /** @type {CustomEvent} */ (event).detail;
        writeForm(this.query);
      });
      window.addEventListener("pagehide", () => this.keep());
    }

    /** @returns {string} the settings, as a link has them */
    get query() {
      const { form } = this;
      const prompt = /** @type {HTMLTextAreaElement} */ (document.querySelector("#prompt textarea")).value;
      const named = SETTINGS.map((name) => [name, String(form?.[name === "tokens" ? "max_new_tokens" : name])]);
      const mixed = { left: form?.left_mix, right: form?.right_mix };
      const pair = TreeRace.pairs.name;
      const settings = { ...(form ? Object.fromEntries(named) : {}), ...(pair ? { pair } : {}), prompt };
      for (const [side, name] of Object.entries(mixed)) if (settings[side] === "mix") settings[side] = name;
      return String(new URLSearchParams(settings));
    }

    // The settings stay also where the race is too long for the browser's store.
    keep() {
      for (const messages of [[], this.messages]) {
        const kept = JSON.stringify({ query: this.query, messages });
        withStore("sessionStorage", (store) => store.setItem(STORED, kept));
      }
    }
  }

  // What was kept, when the page was loaded again or come back to by the browser's history; null otherwise, and where the browser
  // keeps nothing.
  /** @returns {{ query: string, messages: RaceMessage[] } | null} */
  function kept() {
    const [visit] = /** @type {PerformanceNavigationTiming[]} */ (performance.getEntriesByType("navigation"));
    return withStore("sessionStorage", (store) => {
      const found = visit && visit.type !== "navigate" ? store.getItem(STORED) : null;
      store.removeItem(STORED);
      return JSON.parse(found || "null");
    });
  }

  return { raceFile, raceLink, raceName, Keepsake, kept };
})();
