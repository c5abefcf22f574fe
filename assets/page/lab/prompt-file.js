// A visitor's file of prompts: chosen, dropped or taken from the page, for all views that are about it. Knows files and the server's
// reader; nothing of what is done with them.

TreeRace.promptFile = (() => {
  const { Questions } = TreeRace.presence;
  const { finder, takeFiles } = TreeRace.elements;
  const { counted } = TreeRace.numbers;

  class PromptFile {
    /** @type {string[]} */
    prompts = [];
    questions = new Questions();
    /** @type {((words: string) => void)[]} told about the prompts when there are others */
    hearers = [];

    /** @param {LabServer["parse_prompts_of_upload"]} read asks the server for a file's prompts */
    constructor(read) {
      this.read = read;
    }

    /**
     * @param {HTMLElement} root of a view, which has the buttons, the field and the place to drop a file
     * @param {(words: string) => void} say
     * @param {() => void} taken hears that there are other prompts
     */
    serve(root, say, taken) {
      const at = finder(root);
      at("gallery").addEventListener("click", () => this.takeGallery());
      at("choose").addEventListener("click", () => at("file").click());
      const mark = (/** @type {boolean} */ isOver) => at("drop").toggleAttribute("data-over", isOver);
      takeFiles(root, at("file"), (file) => this.take(file, say), mark);
      this.hearers.push((words) => {
        at("about-file").textContent = words;
        taken();
      });
    }

    // The prompts of the page's own menus, as they are for the pair.
    takeGallery() {
      const gallery = Object.values(TreeRace.pairs.gallery).flat();
      this.questions.drop();
      const prompts = gallery.map(({ prompt }) => prompt);
      this.keep(prompts, "this page");
    }

    /**
     * @param {File} file
     * @param {(words: string) => void} say
     */
    async take(file, say) {
      const found = await this.questions.last(this.found(file));
      if (!found) return;
      if (found.refused) return say(found.refused);
      this.keep(found.prompts, file.name);
    }

    /**
     * @param {File} file
     * @returns {ReturnType<LabServer["parse_prompts_of_upload"]>}
     */
    async found(file) {
      let text;
      try {
        text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      } catch {
        return /** @type {any} */ ({ refused: `${file.name} is not UTF-8 text.` });
      }
      return this.read(file.name, text);
    }

    /**
     * @param {string[]} prompts
     * @param {string} name
     */
    keep(prompts, name) {
      this.prompts = prompts;
      for (const hear of this.hearers) hear(`${counted(prompts.length, "prompt")} of ${name}`);
    }
  }

  return { PromptFile };
})();
