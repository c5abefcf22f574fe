// Elements of the page: made, found by name, waited for; what a browser keeps and hands over. Strings become text, never markup. Knows
// nothing of races.

TreeRace.elements = (() => {
  /**
   * @template {keyof HTMLElementTagNameMap} Tag
   * @param {Tag} tag
   * @param {string} className
   * @param {...(string | Node)} inside
   */
  function make(tag, className = "", ...inside) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    made.append(...inside);
    return made;
  }

  /**
   * @param {string} className
   * @param {() => unknown} pressed
   * @param {...(string | Node)} inside
   */
  function button(className, pressed, ...inside) {
    const made = make("button", className, ...inside);
    made.type = "button";
    made.addEventListener("click", () => pressed());
    return made;
  }

  /**
   * @param {string} tag
   * @param {Record<string, string | number>} [attributes]
   * @param {...(string | Node)} inside
   */
  function draw(tag, attributes = {}, ...inside) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
    made.append(...inside);
    return /** @type {SVGElement} */ (made);
  }

  /**
   * For what is written in every frame: a text that stays the same costs nothing.
   * @param {HTMLElement} place
   * @param {string} text
   */
  function write(place, text) {
    if (place.textContent !== text) place.textContent = text;
  }

  // Finds elements of `root` by the name in their data attribute. The page's own markup holds them all, so the type is left open.
  /** @type {(root: ParentNode, prefix?: string) => (name: string) => any} */
  const finder =
    (root, prefix = "") =>
    (name) =>
      root.querySelector(`[data-${prefix}${name}]`);

  /** @type {(root: ParentNode, selector: string) => any[]} of which the type is left open too */
  const findAll = (root, selector) => [...root.querySelectorAll(selector)];

  /**
   * Tells `choose` which of the radios of that name was chosen.
   * @param {ParentNode} root
   * @param {string} name
   * @param {(value: string) => void} choose
   */
  function onChoice(root, name, choose) {
    for (const radio of findAll(root, `[name=${name}]`)) radio.addEventListener("change", () => choose(radio.value));
  }

  /**
   * Files that are chosen in the field or dropped on the place; `mark` is told whether one is held over it.
   * @param {HTMLElement} place
   * @param {any} field
   * @param {(file: File) => void} take
   * @param {(isOver: boolean) => void} mark
   * @param {(event: DragEvent) => unknown} isWanted
   */
  function takeFiles(place, field, take, mark, isWanted = () => true) {
    field.addEventListener("change", () => {
      if (field.files[0]) take(field.files[0]);
      field.value = ""; // the same file can be chosen again
    });
    for (const kind of /** @type {const} */ (["dragover", "dragleave", "drop"])) {
      place.addEventListener(kind, (event) => {
        if (!isWanted(event)) return;
        event.preventDefault();
        const isWithin = event.relatedTarget instanceof Node && place.contains(event.relatedTarget);
        mark(kind === "dragover" || (kind === "dragleave" && isWithin));
        const file = event.dataTransfer?.files[0];
        if (kind === "drop" && file) take(file);
      });
    }
  }

  /**
   * What `use` makes of the browser's store; null where there is no room, or where the browser blocks it, as in a frame of another site.
   * @template Result
   * @param {"localStorage" | "sessionStorage"} name
   * @param {(store: Storage) => Result} use
   */
  function withStore(name, use) {
    try {
      return use(globalThis[name]);
    } catch {
      return null;
    }
  }

  /**
   * @param {any} bar
   * @param {number} done
   * @param {number} of
   * @param {number} share shown of it, where pieces are done in part
   */
  function fillBar(bar, done, of, share = of && done / of) {
    bar.firstElementChild.style.width = `${100 * share}%`;
    bar.setAttribute("aria-valuemax", of);
    bar.setAttribute("aria-valuenow", done);
  }

  /** @type {(template: HTMLTemplateElement) => any} */
  const copyOf = (template) => template.content.firstElementChild?.cloneNode(true);

  /**
   * Calls `then` once `isThere` holds, which is asked again whenever elements come: parts of the page mount in any order.
   * @param {() => unknown} isThere
   * @param {() => void} then
   */
  function whenThere(isThere, then) {
    const begin = () => requestAnimationFrame(then); // what came last has its listeners by then
    if (isThere()) return begin();
    const observer = new MutationObserver(() => {
      if (!isThere()) return;
      observer.disconnect();
      begin();
    });
    observer.observe(document.documentElement, { childList: true, subtree: true });
  }

  /**
   * Hides an element until the page's fonts are there, and draws it then: lines break elsewhere in another face.
   * @param {HTMLElement} element
   * @param {() => void} [draw]
   */
  function showInItsFonts(element, draw) {
    element.style.visibility = "hidden";
    Promise.allSettled([...document.fonts].map((font) => font.load())).then(() => {
      draw?.();
      element.style.visibility = "";
    });
  }

  /** @param {() => unknown} act in the next frame, once, however often it is asked for until then */
  function inNextFrame(act) {
    let waiting = false;
    return () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        act();
      });
    };
  }

  // Pictures that were hidden take their size when they hear this.
  const announceResize = () => window.dispatchEvent(new Event("resize"));

  // Whether the visitor wants little motion.
  const isCalm = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

  return {
    make,
    button,
    draw,
    write,
    finder,
    findAll,
    onChoice,
    takeFiles,
    withStore,
    fillBar,
    copyOf,
    whenThere,
    showInItsFonts,
    inNextFrame,
    announceResize,
    isCalm,
  };
})();
