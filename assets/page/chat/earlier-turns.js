// The earlier turns of the chat that a race goes on with: the last one on a line above the lanes, all of them in a panel. As text; knows
// nothing of races.

TreeRace.earlierTurns = (() => {
  const { finder, make } = TreeRace.elements;
  const { counted } = TreeRace.numbers;
  const { popover } = TreeRace.popover;

  /** @param {Turn[]} turns */
  const countWords = ({ length }) => counted(length, "earlier turn");

  /** @param {Turn} turn */
  function textsOf([request, answer]) {
    return [make("span", "turn-request", request), make("span", "turn-answer", answer.trim())];
  }

  // Returns what shows other turns there; without any the place is hidden. Styles cut long texts.
  /** @param {HTMLElement} place */
  function mountTurns(place) {
    const at = finder(place);
    const open = popover(at("last"));
    /** @param {Turn[]} [turns] */
    return (turns = []) => {
      open(false);
      place.hidden = !turns.length;
      const last = turns.slice(-1).flatMap(textsOf);
      at("last").replaceChildren(make("b", "", countWords(turns)), ...last);
      at("all").replaceChildren(...turns.map((turn) => make("p", "", ...textsOf(turn))));
    };
  }

  return { countWords, mountTurns };
})();
