// Elements of the page: made, found by name, waited for. Strings become text, never markup. Knows nothing of races.
"use strict";

TreeRace.elements = (() => {
  /**
   * An element with these things in it.
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
   * An element of a drawing with these attributes and these things in it.
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

  /**
   * Finds elements of `root` by the name in their data attribute. The page's own markup holds them all, so the type is left open.
   * @param {ParentNode} root
   * @param {string} prefix
   * @returns {(name: string) => any}
   */
  function finder(root, prefix = "") {
    return (name) => root.querySelector(`[data-${prefix}${name}]`);
  }

  /**
   * A copy of what a template holds.
   * @param {HTMLTemplateElement} template
   * @returns {any}
   */
  function copyOf(template) {
    return template.content.firstElementChild?.cloneNode(true);
  }

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

  // Pictures that were hidden take their size when they hear this.
  const announceResize = () => window.dispatchEvent(new Event("resize"));

  // Whether the visitor wants little motion; asked anew each time.
  const motion = window.matchMedia("(prefers-reduced-motion: reduce)");
  const isCalm = () => motion.matches;

  return { make, draw, write, finder, copyOf, whenThere, showInItsFonts, announceResize, isCalm };
})();
