// The replay page: one race, and nothing to ask. Knows the page's parts; there is no server.

TreeRace.replay = (() => {
  const { mountDarkMode, mountPresentation } = TreeRace.presentation;
  const { finder, showInItsFonts } = TreeRace.elements;
  const { showKeys } = TreeRace.keys;
  const { RaceView } = TreeRace.raceView;
  const { showRecorded } = TreeRace.recordedRace;

  function mount() {
    const at = finder(document);
    const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
    document.body.classList.toggle("dark", dark); // unless a choice is remembered
    mountPresentation(at("stage-button"));
    mountDarkMode(at("theme"));
    at("keys").addEventListener("click", showKeys);
    TreeRace.view = new RaceView(at("race"), { systems: {}, parts: {} });
    const event = JSON.parse(document.querySelector("#event")?.textContent ?? "null");
    showInItsFonts(at("race"), () => showRecorded(event)); // labels are measured
  }

  return { mount };
})();

TreeRace.replay.mount();
