// The head of the page: the pair's name, the gallery, dark mode, the help. Knows the form; nothing of races.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const DARK = "treerace-dark";
  const { make } = T;

  // Writes into a Gradio text box as if it had been typed.
  T.fill = function (selector, text) {
    const box = document.querySelector(selector);
    box.value = text;
    box.dispatchEvent(new Event("input", { bubbles: true }));
    box.scrollTop = 0;
  };

  // The button that starts what the shown screen is about.
  T.go = () => [...document.querySelectorAll(".go")].find((go) => go.offsetParent);

  T.pressGo = () => T.go()?.click();

  // A menu of titles and prompts; `choose` is told which one was taken.
  T.galleryMenu = function (name, entries, choose) {
    const menu = make("div", "menu");
    const button = make("button", "chip", name);
    button.type = "button";
    const panel = make("div", "panel prompts");
    const open = T.popover(menu, button, panel);
    for (const entry of entries) {
      const choice = make("button", "prompt");
      choice.type = "button";
      choice.append(make("b", "", entry.title), make("span", "", entry.prompt));
      choice.addEventListener("click", () => {
        open(false);
        choose(entry);
        T.go()?.focus();
      });
      panel.append(choice);
    }
    menu.append(button, panel);
    return menu;
  };

  // A browser may forbid storage; then the choice holds for this visit only.
  const memory = {
    read() {
      try {
        return localStorage.getItem(DARK);
      } catch {
        return null;
      }
    },
    write(dark) {
      try {
        localStorage.setItem(DARK, dark);
      } catch {
        // nothing to do
      }
    },
  };

  T.mountDarkMode = function (button) {
    const show = () => {
      const dark = document.body.classList.contains("dark");
      button.setAttribute("aria-pressed", String(dark));
      button.textContent = dark ? "☀" : "☾";
    };
    button.addEventListener("click", () => {
      memory.write(document.body.classList.toggle("dark"));
      show();
    });
    T.addKeys(["D"], "dark or light", { d: () => button.click() });
    const chosen = memory.read();
    if (chosen !== null) document.body.classList.toggle("dark", chosen === "true");
    show();
  };

  // Shows one screen of the page; the others keep what they hold.
  T.showScreen = function (name) {
    document.querySelector("#screen").dataset.screen = name;
    document.querySelectorAll("[data-screens] button").forEach((button) => {
      button.toggleAttribute("aria-current", button.dataset.name === name);
    });
    window.dispatchEvent(new Event("resize")); // pictures that were hidden take their size now
  };

  function screenMenu(nav, screens) {
    for (const [name, title] of Object.entries(screens)) {
      const button = make("button", "", title);
      button.type = "button";
      button.dataset.name = name;
      button.addEventListener("click", () => T.showScreen(name));
      nav.querySelector("[data-learn]").before(button);
    }
    T.showScreen(Object.keys(screens)[0]);
  }

  T.mountHeader = function (root, { pair, prompts, screens, races }, server) {
    screenMenu(root.querySelector("[data-screens]"), screens);
    root.querySelector("[data-pair]").textContent = pair;
    const gallery = root.querySelector("[data-gallery]");
    const write = ({ prompt }) => T.fill("#prompt textarea", prompt);
    for (const [domain, each] of Object.entries(prompts)) gallery.append(T.galleryMenu(domain, each, write));
    T.mountStage(root.querySelector("[data-stage-button]"));
    T.mountDarkMode(root.querySelector("[data-theme]"));
    T.popover(root.querySelector("[data-help]"), root.querySelector("[data-help] button"), root.querySelector(".help"));
    root.querySelector("[data-keys]").addEventListener("click", T.showKeys);
    T.mountTake(root, races, server);
  };
})(window.TreeRace);
