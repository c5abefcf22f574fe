// The head of the page: the pair's name and the choice of pairs, the screens, the gallery, the tools. Puts other parts in their places; knows nothing of races.
"use strict";

TreeRace.masthead = (() => {
  const { showWhenWhole } = TreeRace.arrival;
  const { mountDarkMode } = TreeRace.darkMode;
  const { finder } = TreeRace.elements;
  const { fill } = TreeRace.form;
  const { galleryMenu } = TreeRace.gallery;
  const { showKeys } = TreeRace.keys;
  const { popover } = TreeRace.popover;
  const { PairSwitch } = TreeRace.pairSwitch;
  const { mountPresentation } = TreeRace.presentation;
  const { followReadiness } = TreeRace.readiness;
  const { mountStageDials } = TreeRace.stageDials;
  const { addStageKeys } = TreeRace.stageKeys;
  const { mountSaveAndOpen } = TreeRace.saveAndOpen;
  const { screenMenu, screenRoot } = TreeRace.screens;
  const { mendTab } = TreeRace.systemMenus;

  /**
   * @param {HTMLElement} root
   * @param {HeadAbout} about
   * @param {RaceServer} server
   */
  function mountHeader(root, { prompts, screens, races, ...own }, server) {
    const at = finder(root);
    showWhenWhole();
    screenMenu(at("screens"), screens);
    const hear = followPairs(at, own);
    for (const [domain, each] of Object.entries(prompts)) {
      at("gallery").append(galleryMenu(domain, each, ({ prompt }) => fill("#prompt textarea", prompt)));
    }
    mountPresentation(at("stage-button"), at("race-again"));
    addStageKeys(Object.values(prompts).flat());
    mountStageDials(at("stage-dials"), screenRoot());
    mendTab();
    mountDarkMode(at("theme"));
    popover(at("help"), root.querySelector("[data-help] button"), root.querySelector(".help"));
    at("keys").addEventListener("click", showKeys);
    mountSaveAndOpen(root, races, server);
    followReadiness((status) => {
      showReadiness(at, status.words);
      if (status.pair) hear(/** @type {OwnPair} */ (status)); // another pair may have come since the page was built
    });
  }

  /**
   * Introduces the page's own pair, or the one that the visitor has chosen. Returns who hears of the server's pairs.
   * @param {(name: string) => any} at
   * @param {OwnPair} first
   */
  function followPairs(at, first) {
    let own = first;
    const pairs = new PairSwitch(at("sizes"));
    TreeRace.pairs = pairs;
    pairs.addEventListener("change", () => {
      const { pair, way } = pairs.chosen ?? own;
      at("pair").textContent = pair;
      at("pair").title = `${pair}. ${way}`;
    });
    /** @param {OwnPair} now */
    const hear = (now) => {
      own = now;
      pairs.offer(now.pairs);
    };
    hear(first);
    return hear;
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
