// A visitor's file of prompts: chosen, dropped or taken from the page. Knows files and the server's reader; nothing of what is done with
// them.

TreeRace.promptFile = (() => {
  const { Questions } = TreeRace.presence;
  const { finder, takeFiles } = TreeRace.elements;
  const { counted } = TreeRace.numbers;

  class PromptFile {
    /** @type {string[]} */
    prompts = [];
    /** @type {PromptFile | null} another place on the page that has the same prompts */
    other = null;

    /**
     * @param {HTMLElement} root has the buttons, the field and the place to drop a file
     * @param {LabServer["parse_prompts_of_upload"]} read asks the server for a file's prompts
     * @param {(words: string) => void} say
     * @param {() => void} taken hears that there are other prompts
     */
    constructor(root, read, say, taken) {
      this.at = finder(root);
      this.read = read;
      this.say = say;
      this.taken = taken;
      this.questions = new Questions();
      this.at("gallery").addEventListener("click", () => this.takeGallery());
      this.at("choose").addEventListener("click", () => this.at("file").click());
      const mark = (/** @type {boolean} */ isOver) => this.at("drop").toggleAttribute("data-over", isOver);
      takeFiles(root, this.at("file"), (file) => this.take(file), mark);
    }

    // The prompts of the page's own menus, as they are for the pair.
    takeGallery() {
      const gallery = Object.values(TreeRace.pairs.gallery).flat();
      this.questions.drop();
      this.keep(
        gallery.map(({ prompt }) => prompt),
        "this page",
      );
    }

    /** @param {File} file */
    async take(file) {
      const found = await this.questions.last(this.found(file));
      if (!found) return;
      if (found.refused) return this.say(found.refused);
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
      this.at("about-file").textContent = `${counted(prompts.length, "prompt")} of ${name}`;
      this.taken();
      if (this.other && this.other.prompts !== prompts) this.other.keep(prompts, name);
    }

    /** @param {PromptFile} other has the same prompts from now on */
    share(other) {
      this.other = other;
      other.other = this;
    }
  }

  return { PromptFile };
})();
