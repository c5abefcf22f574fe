// The form that all screens share, from outside: writes into it, finds its Start. Knows Gradio's elements by their ids.

TreeRace.form = (() => {
  /**
   * Writes into a Gradio text box as if it had been typed.
   * @param {string} selector
   * @param {string} text
   */
  function fill(selector, text) {
    const box = /** @type {HTMLTextAreaElement} */ (document.querySelector(selector));
    box.value = text;
    box.dispatchEvent(new Event("input", { bubbles: true }));
    box.scrollTop = 0;
  }

  /**
   * Writes a prepared prompt into the form. It begins a new chat.
   * @param {string} prompt
   */
  function takePrompt(prompt) {
    TreeRace.chat?.drop();
    fill("#prompt textarea", prompt);
  }

  /**
   * The button that starts what the shown screen is about.
   * @returns {HTMLElement | undefined}
   */
  function goButton() {
    const all = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".go"));
    return [...all].find((go) => go.offsetParent);
  }

  /**
   * Clicks one of the page's buttons.
   * @param {string} selector
   */
  function press(selector) {
    /** @type {HTMLElement | null} */ (document.querySelector(selector))?.click();
  }

  // Starts a race, from wherever its button is hidden; none while one is on its way.
  function pressRace() {
    if (!TreeRace.view.isLive) TreeRace.view.race.start();
  }

  const pressGo = () => goButton()?.click();

  return { fill, goButton, press, pressGo, pressRace, takePrompt };
})();
