// The chat that the next race goes on with: its earlier turns, kept by Reply and dropped by New chat. Knows the race that is shown, the
// pair and the prompt box; how turns are drawn, the lanes know.

TreeRace.chatTurns = (() => {
  const { countWords } = TreeRace.earlierTurns;
  const { finder, whenThere } = TreeRace.elements;
  const { fill, promptBox } = TreeRace.form;
  const { screenRoot } = TreeRace.screens;

  const NO_LINK = "A link does not carry the chat.";

  class ChatTurns {
    /** @type {Turn[]} before the next prompt */
    turns = [];
    /** @type {string | null} the race that was shown last */
    run = null;

    /** @param {HTMLElement} root */
    constructor(root) {
      this.at = finder(root);
      this.pair = TreeRace.pairs.spoken?.title; // whose chat it is
      this.placeholder = promptBox().placeholder;
      this.at("reply").title = `Keeps this request and its answer: the next race goes on from there. ${NO_LINK}`;
      this.at("reply").addEventListener("click", () => this.reply());
      this.at("anew").addEventListener("click", () => {
        this.drop();
        promptBox().focus();
      });
      TreeRace.view.addEventListener("change", () => this.follow());
      TreeRace.pairs.addEventListener("change", () => this.follow());
      this.follow();
    }

    // The turns of the race that is shown; null where it is none of this pair's chats.
    get shownTurns() {
      const trace = TreeRace.view.systems[0]?.trace;
      return trace?.chat && trace.pair === this.pair ? (trace.turns ?? []) : null;
    }

    // Whether the shown race has an answer that is not among the turns yet: it came to its end.
    get isAnswered() {
      const { isLive, result, told } = TreeRace.view;
      const isWhole = result && result.finished !== false && result.identical !== "failed";
      return Boolean(told && !isLive && isWhole && this.shownTurns && this.turns.length <= this.shownTurns.length);
    }

    // A race that begins brings its turns along, another pair none.
    follow() {
      const { pairs, view } = TreeRace;
      const isOther = pairs.spoken?.title !== this.pair;
      this.pair = pairs.spoken?.title;
      if (isOther) this.turns = [];
      else if (view.run && view.run !== this.run) this.turns = [...(this.shownTurns ?? [])];
      this.run = view.run;
      this.show();
    }

    // The answer is the left lane's: where a system promises no equal text, it is the one that is compared with.
    reply() {
      const { lanes, systems } = TreeRace.view;
      const answer = lanes[0].steps.flatMap(({ pieces }) => pieces).join("");
      this.turns = [...(this.shownTurns ?? []), [systems[0].trace.prompt, answer]];
      fill("#prompt textarea", "");
      promptBox().focus();
      this.show();
    }

    drop() {
      this.turns = [];
      this.show();
    }

    show() {
      const { turns } = this;
      screenRoot().toggleAttribute("data-chats", Boolean(TreeRace.pairs.spoken?.chat));
      screenRoot().toggleAttribute("data-turns", Boolean(TreeRace.view.systems[0]?.trace.turns)); // the lanes' menus move with the lanes
      this.at("reply").disabled = !this.isAnswered;
      this.at("anew").disabled = !turns.length;
      this.at("anew").title = turns.length ? `Drops ${countWords(turns)}. ${NO_LINK}` : "";
      promptBox().placeholder = turns.length ? `Reply … (after ${countWords(turns)})` : this.placeholder;
    }
  }

  /** @param {HTMLElement} element */
  function mountChat(element) {
    const root = /** @type {HTMLElement} */ (element.querySelector("[data-chat]"));
    whenThere(
      () => TreeRace.view && TreeRace.pairs && promptBox(),
      () => {
        TreeRace.chat = new ChatTurns(root);
      },
    );
  }

  return { ChatTurns, mountChat };
})();
