// The opening page: says how far the live page is and goes over to it. Whoever has touched the recorded race is asked first.
"use strict";

TreeRace.opening = (() => {
  const { finder } = TreeRace.elements;
  const { followReadiness } = TreeRace.readiness;

  function mount() {
    const at = finder(document, "opening");
    const line = document.querySelector(".opening");
    const [words, go] = [at("-words"), at("-go")];
    let touched = false;
    for (const touch of ["pointerdown", "keydown"]) {
      window.addEventListener(touch, () => {
        touched = true;
      });
    }
    const goOver = () => location.reload(); // the same address, with its settings
    go.addEventListener("click", goOver);
    let left = false;
    followReadiness(({ words: now, live }) => {
      if (left) return;
      words.textContent = live ? "" : now;
      left = live;
      if (!live) return;
      if (!touched) return goOver();
      line?.classList.add("there");
      line?.querySelector("b")?.replaceChildren("The live page is there.");
      go.hidden = false;
    });
  }

  return { mount };
})();

TreeRace.opening.mount();
