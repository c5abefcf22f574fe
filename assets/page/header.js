// The head of the page: the pair's name, the gallery, dark mode, the help. Knows the form; nothing of races.
window.TreeRace = window.TreeRace || {};

(function (T) {
  // Writes into a Gradio text box as if it had been typed.
  T.fill = function (selector, text) {
    const box = document.querySelector(selector);
    box.value = text;
    box.dispatchEvent(new Event("input", { bubbles: true }));
    box.scrollTop = 0;
  };

  function element(tag, className, text) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text) made.textContent = text;
    return made;
  }

  function toggleMenu(menu, open) {
    menu.querySelector("[data-opens]").setAttribute("aria-expanded", String(open));
    menu.querySelector(".panel").hidden = !open;
  }

  function galleryMenu(domain, prompts) {
    const menu = element("div", "menu");
    menu.dataset.menu = "";
    const button = element("button", "chip", domain);
    button.type = "button";
    button.dataset.opens = "";
    button.setAttribute("aria-expanded", "false");
    const panel = element("div", "panel prompts");
    panel.hidden = true;
    for (const { title, prompt } of prompts) {
      const choice = element("button", "prompt");
      choice.type = "button";
      choice.append(element("b", "", title), element("span", "", prompt));
      choice.addEventListener("click", () => {
        T.fill("#prompt textarea", prompt);
        toggleMenu(menu, false);
        document.querySelector("#go").focus();
      });
      panel.append(choice);
    }
    menu.append(button, panel);
    return menu;
  }

  function darkMode(button) {
    const show = () => {
      const dark = document.body.classList.contains("dark");
      button.setAttribute("aria-pressed", String(dark));
      button.textContent = dark ? "☀" : "☾";
    };
    button.addEventListener("click", () => {
      document.body.classList.toggle("dark");
      show();
    });
    show();
  }

  T.mountHeader = function (root, value) {
    const { pair, prompts } = JSON.parse(value);
    root.querySelector("[data-pair]").textContent = pair;
    const gallery = root.querySelector("[data-gallery]");
    for (const [domain, each] of Object.entries(prompts)) gallery.append(galleryMenu(domain, each));
    darkMode(root.querySelector("[data-theme]"));
    const menus = [...root.querySelectorAll("[data-menu]")];
    for (const menu of menus) {
      menu.querySelector("[data-opens]").addEventListener("click", (event) => {
        const open = event.currentTarget.getAttribute("aria-expanded") === "true";
        menus.forEach((each) => toggleMenu(each, each === menu && !open));
      });
    }
    document.addEventListener("pointerdown", (event) => {
      menus.filter((menu) => !menu.contains(event.target)).forEach((menu) => toggleMenu(menu, false));
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      const open = menus.find((menu) => !menu.querySelector(".panel").hidden);
      if (!open) return;
      toggleMenu(open, false);
      open.querySelector("[data-opens]").focus();
    });
  };
})(window.TreeRace);
