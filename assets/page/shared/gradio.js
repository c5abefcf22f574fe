// What Gradio calls: parts that mount and handlers of events, each by its path on `TreeRace`. Knows how Gradio hands over values; nothing of
// what they mean.
window.TreeRace = window.TreeRace || {};

(function (T) {
  function called(path, ...given) {
    const names = path.split(".");
    const method = names.pop();
    return names.reduce((each, name) => each[name], T)[method](...given);
  }

  // Fills a part of the page; its value travels as JSON.
  T.mount = (path, element, props, server) => called(path, element, JSON.parse(props.value), server);

  // The function for an event whose values have these names. The handler gets them as one object and may answer with those that it changes.
  T.named = (path, names) => (...values) => {
    const given = Object.fromEntries(names.map((name, index) => [name, values[index]]));
    const now = { ...given, ...called(path, given) };
    return names.map((name) => now[name]);
  };
})(window.TreeRace);
