// What comes from the server: JSON strings of a wire become events of the window, and no answer becomes one. Knows their order;
// reads nothing else in them.
window.TreeRace = window.TreeRace || {};

(function (T) {
  // What was asked of the server; without an answer, a refusal as the server words its own.
  T.answered = (asked) => asked.catch(() => ({ refused: "The server did not answer. Try again." }));

  T.mountWire = function (name, props, watch) {
    let run = null;
    let seq = 0;
    const receive = () => {
      const message = JSON.parse(props.value || "null");
      if (!message || (message.run === run && message.seq <= seq)) return;
      if (message.run !== run) [run, seq] = [message.run, 0];
      const lost = message.seq - seq - 1; // messages of this run that never arrived
      seq = message.seq;
      window.dispatchEvent(new CustomEvent(name, { detail: { ...message, lost } }));
    };
    watch("value", receive);
    receive(); // watch does not report the value that is there at the start
  };
})(window.TreeRace);
