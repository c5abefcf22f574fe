// The head of the page: the pair's name and the choice of pairs, the screens, the gallery, the tools. Puts other parts in their places;
// knows nothing of races.

TreeRace.masthead = (() => {
  const { mountDarkMode, mountPresentation } = TreeRace.presentation;
  const { read, screenMenu, screenRoot } = TreeRace.screens;
  const { finder, make, whenThere } = TreeRace.elements;
  const { fill, promptBox, takePrompt } = TreeRace.form;
  const { showKeys } = TreeRace.keys;
  const { galleryMenu, popover } = TreeRace.popover;
  const { PairSwitch } = TreeRace.pairSwitch;
  const { followReadiness } = TreeRace.presence;
  const { addStageKeys, mountStageDials } = TreeRace.stage;
  const { mountSaveAndOpen } = TreeRace.saveAndOpen;
  const { markLacking, mendTab } = TreeRace.systemMenus;

  const PARTS = [
    ".masthead .screens button",
    "#prompt textarea",
    "#systems input",
    "#race-halt",
    ".lane",
    '#dials input[type="range"]',
    "#dials .constraint textarea",
  ];

  /**
   * @param {HTMLElement} root
   * @param {HeadAbout} about
   * @param {RaceServer} server
   */
  function mountHeader(root, { prompts, examples, screens, races, ...own }, server) {
    const at = finder(root);
    showWhenWhole();
    screenMenu(at("screens"), screens);
    const menus = { plain: promptMenus(prompts), chat: promptMenus(examples) };
    at("gallery").append(...menus.plain, ...menus.chat);
    const [[plain], [request]] = [prompts, examples].map((each) => Object.values(each).flat());
    const linked = read("prompt"); // of the place that a link leads to, which stays as it is
    let before = false; // the plain prompt is in the page from the server on
    const pairs = new PairSwitch(at("sizes"), { plain: prompts, chat: examples });
    TreeRace.pairs = pairs;
    pairs.addEventListener("change", () => {
      const { pair, way, chat } = pairs.spoken ?? own;
      for (const menu of menus.plain) menu.hidden = chat;
      for (const menu of menus.chat) menu.hidden = !chat;
      const [mine, other] = chat ? [request, plain] : [plain, request];
      // The first prompt for this kind of pair takes the place of the other kind's; what a visitor has written stays
      if (chat !== before && other.prompt !== linked)
        whenThere(promptBox, () => promptBox().value === other.prompt && fill("#prompt textarea", mine.prompt));
      before = chat;
      at("pair").title = `${pair}. ${way}`;
      if (at("pair").textContent === pair) return;
      // Each part has the dot before it. Where even the first has no place, nothing is before it
      const parts = pair.split(" · ").map((part, index) => make("span", "", index ? ` · ${part}` : part));
      at("pair").replaceChildren(make("i"), ...parts);
    });
    pairs.hear(own);
    mountPresentation(at("stage-button"), at("race-again"));
    addStageKeys(() => Object.values(pairs.gallery).flat());
    mountStageDials(at("stage-dials"), screenRoot());
    mendTab();
    markLacking();
    mountDarkMode(at("theme"));
    popover(root.querySelector("[data-help] button"));
    at("keys").addEventListener("click", showKeys);
    mountSaveAndOpen(root, races, server);
    followReadiness((status) => {
      at("pair").hidden = status.words !== "";
      at("readying").hidden = status.words === ""; // what is made ready, in place of the pair's name
      at("readying").textContent = at("readying").title = status.words;
      if (status.pair) pairs.hear(/** @type {OwnPair} */ (status)); // another pair may have come since the page was built
    });
  }

  // Says when all parts of the page have come, for the styles: a rule that looked for them would be asked anew at every change of the page.
  function showWhenWhole() {
    whenThere(
      () => PARTS.every((part) => document.querySelector(part)),
      () => {
        screenRoot().toggleAttribute("data-arrived", true);
        document.querySelector("#plotly")?.setAttribute("rel", "prefetch"); // for the first plot; no part of the page waits for it
      },
    );
  }

  /** @param {Gallery} prompts by domain; each gets a menu, and what is taken goes into the form */
  function promptMenus(prompts) {
    const take = (/** @type {{ prompt: string }} */ { prompt }) => takePrompt(prompt);
    return Object.entries(prompts).map(([domain, each]) => galleryMenu(domain, each, take));
  }

  return { mountHeader };
})();
