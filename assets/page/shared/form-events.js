// What Gradio's events call: a screen's handler, given the form's values by name. Knows the order in which Gradio passes values; nothing of
// what they mean.
window.TreeRace = window.TreeRace || {};

(function (T) {
  // The function for an event whose values have these names. The handler, a method on `TreeRace`, gets them as one object and may
  // answer with those that it changes.
  T.named = (handler, names) => (...values) => {
    const given = Object.fromEntries(names.map((name, index) => [name, values[index]]));
    const path = handler.split(".");
    const method = path.pop();
    const owner = path.reduce((each, name) => each[name], T);
    const now = { ...given, ...owner[method](given) };
    return names.map((name) => now[name]);
  };
})(window.TreeRace);
