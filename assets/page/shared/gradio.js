// What Gradio calls: parts that mount and handlers of events, each by its path on `TreeRace`, by which Python knows the page. Knows how
// Gradio hands over values; nothing of what they mean.

TreeRace.gradio = (() => {
  /**
   * Calls what stands at this path, as in "view.pending".
   * @param {string} path
   * @param {...unknown} given
   */
  function called(path, ...given) {
    const names = path.split(".");
    const method = /** @type {string} */ (names.pop());
    /** @type {any} */
    const owner = names.reduce((each, name) => each[name], /** @type {any} */ (TreeRace));
    return owner[method](...given);
  }

  /**
   * Fills a part of the page, in a task of its own: Gradio builds all in one. Its value travels as JSON.
   * @param {string} path
   * @param {HTMLElement} element
   * @param {{ value: string }} props
   * @param {object} server
   */
  function mount(path, element, props, server) {
    setTimeout(() => called(path, element, JSON.parse(props.value), server));
  }

  /**
   * The function for an event whose values have these names. The handler gets them as one object and may answer with those that it changes.
   * @param {string} path
   * @param {string[]} names
   * @returns {(...values: unknown[]) => unknown[]}
   */
  function named(path, names) {
    return (...values) => {
      const given = Object.fromEntries(names.map((name, index) => [name, values[index]]));
      const now = { ...given, ...called(path, given) };
      return names.map((name) => now[name]);
    };
  }

  // What this asks of the browser first reads tables of languages. Gradio asks for it in the task in which its page begins.
  Intl.NumberFormat.supportedLocalesOf("en");

  return { mount, named };
})();
