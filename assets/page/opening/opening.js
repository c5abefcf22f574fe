// The opening page: says how far the live page is and goes over to it. Whoever has touched the recorded race is asked first.
// Until then the race begins again and again, each time with the story of one step.

TreeRace.opening = (() => {
  const { finder, isCalm } = TreeRace.elements;
  const { followReadiness } = TreeRace.presence;

  const REST = 4000; // milliseconds between a race's end and its next beginning
  const SOON = 200; // milliseconds between two looks whether a story is over

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
    followReadiness(
      ({ words: now, live }) => {
        if (left) return;
        words.textContent = live ? "" : now;
        left = live;
        if (live) afterStory();
      },
      () => left && !touched,
    );

    // Nobody is torn out of a story.
    const afterStory = () => {
      if (touched) offer();
      else if (TreeRace.view.slowStart.isTelling) setTimeout(afterStory, SOON);
      else goOver();
    };
    const offer = () => {
      line?.classList.add("there");
      line?.querySelector("b")?.replaceChildren("The live page is there.");
      go.hidden = false;
    };

    let resting = false;
    TreeRace.view.addEventListener("change", () => {
      const { atEnd, playing, slowStart } = TreeRace.view;
      if (resting || touched || isCalm() || !atEnd || playing || slowStart.isTelling) return;
      resting = true;
      setTimeout(() => {
        resting = false;
        if (!touched) slowStart.again();
      }, REST);
    });
  }

  return { mount };
})();

TreeRace.opening.mount();
