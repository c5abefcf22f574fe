// A wire: JSON strings from the server become events of the window. Knows their order; reads nothing else in them.
window.TreeRace = window.TreeRace || {};

(function (T) {
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
