// The keepsake: what a visitor had set and the race that was shown outlive a reload, with which the page answers a lost server.
// Knows the race's events and the form's fields; puts nothing back itself.

TreeRace.keepsake = (() => {
  const { SETTINGS, writeForm } = TreeRace.screens;
  const { withStore } = TreeRace.elements;
  const { onRun } = TreeRace.runs;

  const NAME = "treerace";

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

    keep() {
      const kept = { query: this.query, messages: this.messages };
      // Without its messages where the race is too long for the browser's store
      if (!stored(kept)) stored({ ...kept, messages: [] });
    }
  }

  /**
   * Whether it is in the browser's store now.
   * @param {{ query: string, messages: RaceMessage[] }} kept
   */
  const stored = (kept) =>
    withStore("sessionStorage", (store) => {
      store.setItem(NAME, JSON.stringify(kept));
      return true;
    });

  /**
   * What was kept, when the page was loaded again or come back to by the browser's history; null otherwise, and where the browser
   * keeps nothing.
   * @returns {{ query: string, messages: RaceMessage[] } | null}
   */
  function kept() {
    const [visit] = /** @type {PerformanceNavigationTiming[]} */ (performance.getEntriesByType("navigation"));
    return withStore("sessionStorage", (store) => {
      const found = visit && visit.type !== "navigate" ? store.getItem(NAME) : null;
      store.removeItem(NAME);
      return JSON.parse(found || "null");
    });
  }

  return { Keepsake, kept };
})();
