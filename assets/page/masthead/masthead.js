// The head of the page: the pair's name and the choice of pairs, the screens, the gallery, the tools. Puts other parts in their places; knows nothing of races.

TreeRace.masthead = (() => {
  const { mountDarkMode, mountPresentation } = TreeRace.presentation;
  const { read, screenMenu, screenRoot } = TreeRace.screens;
  const { finder, make, whenThere } = TreeRace.elements;
  const { fill, takePrompt } = TreeRace.form;
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
    const pairs = followPairs(new PairSwitch(at("sizes"), { plain: prompts, chat: examples }), at, own, (chat) => {
      for (const menu of menus.plain) menu.hidden = chat;
      for (const menu of menus.chat) menu.hidden = !chat;
      const [mine, other] = chat ? [request, plain] : [plain, request];
      if (chat !== before && other.prompt !== linked) beginWith(mine.prompt, other.prompt);
      before = chat;
    });
    mountPresentation(at("stage-button"), at("race-again"));
    addStageKeys(() => Object.values(pairs.gallery).flat());
    mountStageDials(at("stage-dials"), screenRoot());
    mendTab();
    markLacking();
    mountDarkMode(at("theme"));
    popover(at("help"), root.querySelector("[data-help] button"), root.querySelector(".help"));
    at("keys").addEventListener("click", showKeys);
    mountSaveAndOpen(root, races, server);
    followReadiness((status) => {
      showReadiness(at, status.words);
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

  /**
   * Puts the first prompt for this kind of pair in the place of the other kind's. What a visitor has written stays.
   * @param {string} mine
   * @param {string} other
   */
  function beginWith(mine, other) {
    const box = () => /** @type {HTMLTextAreaElement | null} */ (document.querySelector("#prompt textarea"));
    whenThere(box, () => {
      if (box()?.value === other) fill("#prompt textarea", mine);
    });
  }

  /**
   * A menu for each domain; what is taken goes into the form.
   * @param {Gallery} prompts
   */
  function promptMenus(prompts) {
    const take = (/** @type {{ prompt: string }} */ { prompt }) => takePrompt(prompt);
    return Object.entries(prompts).map(([domain, each]) => galleryMenu(domain, each, take));
  }

  /**
   * Introduces the page's own pair, or the one that the visitor has chosen. Returns the switch between them.
   * @param {InstanceType<typeof PairSwitch>} pairs
   * @param {(name: string) => any} at
   * @param {OwnPair} own
   * @param {(chat: boolean) => void} offerPrompts told whether the pair answers requests
   */
  function followPairs(pairs, at, own, offerPrompts) {
    TreeRace.pairs = pairs;
    pairs.addEventListener("change", () => {
      const { pair, way, chat } = pairs.spoken ?? own;
      offerPrompts(chat);
      if (at("pair").textContent !== pair) at("pair").replaceChildren(make("i"), ...partsOf(pair));
      at("pair").title = `${pair}. ${way}`;
    });
    pairs.hear(own);
    return pairs;
  }

  /**
   * The pair's words, each part with the dot before it. Where even the first has no place, nothing is before it.
   * @param {string} pair
   */
  function partsOf(pair) {
    return pair.split(" · ").map((part, at) => make("span", "", at ? ` · ${part}` : part));
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
