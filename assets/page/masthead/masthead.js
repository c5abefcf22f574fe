// The head of the page: the pair's name, the screens, the gallery, the tools. Puts other parts in their places; knows nothing of races.
"use strict";

TreeRace.masthead = (() => {
  const { mountDarkMode } = TreeRace.darkMode;
  const { finder } = TreeRace.elements;
  const { fill } = TreeRace.form;
  const { galleryMenu } = TreeRace.gallery;
  const { showKeys } = TreeRace.keys;
  const { popover } = TreeRace.popover;
  const { mountPresentation } = TreeRace.presentation;
  const { followReadiness } = TreeRace.readiness;
  const { addStageKeys } = TreeRace.stageKeys;
  const { mountSaveAndOpen } = TreeRace.saveAndOpen;
  const { screenMenu } = TreeRace.screens;

  /**
   * @param {HTMLElement} root
   * @param {{ pair: string, way: string, prompts: Gallery, screens: Record<string, string>, races: RaceEntry[] }} about
   * @param {RaceServer} server
   */
  function mountHeader(root, { pair, way, prompts, screens, races }, server) {
    const at = finder(root);
    screenMenu(at("screens"), screens);
    introduce(at, pair, way);
    for (const [domain, each] of Object.entries(prompts)) {
      at("gallery").append(galleryMenu(domain, each, ({ prompt }) => fill("#prompt textarea", prompt)));
    }
    mountPresentation(at("stage-button"), at("race-again"));
    addStageKeys(Object.values(prompts).flat());
    mountDarkMode(at("theme"));
    popover(at("help"), root.querySelector("[data-help] button"), root.querySelector(".help"));
    at("keys").addEventListener("click", showKeys);
    mountSaveAndOpen(root, races, server);
    followReadiness((status) => {
      showReadiness(at, status.words);
      if (status.pair) introduce(at, status.pair, status.way); // another pair may have come since the page was built
    });
  }

  /**
   * @param {(name: string) => any} at
   * @param {string} pair
   * @param {string | undefined} way which forward runs, in a sentence
   */
  function introduce(at, pair, way) {
    at("pair").textContent = pair;
    at("pair").title = way;
  }

  /**
   * What is made ready, in place of the pair's name.
   * @param {(name: string) => any} at
   * @param {string} words "" when nothing is left
   */
  function showReadiness(at, words) {
    at("pair").hidden = words !== "";
    at("readying").hidden = words === "";
    at("readying").textContent = at("readying").title = words;
  }

  return { mountHeader };
})();
