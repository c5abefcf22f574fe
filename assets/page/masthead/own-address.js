// The page's own address: Gradio is told where the document came from, which a proxy under a sub-path does not tell the server. Says what
// is missing where a frame keeps the page from its server. Knows addresses alone.

TreeRace.ownAddress = (() => {
  const FRAMED =
    'This page is in a frame that keeps it from its own server. The frame needs sandbox="allow-scripts allow-same-origin".';

  // The server's address is the document's, with a slash at its end: what the page asks for is named from there.
  function settle() {
    const { origin, pathname, search, hash } = location;
    if (window.origin === "null") {
      const words = document.createElement("p");
      words.textContent = FRAMED;
      return document.body.prepend(words);
    }
    if (!pathname.endsWith("/")) return location.replace(`${origin}${pathname}/${search}${hash}`);
    if (window.gradio_config) window.gradio_config.root = `${origin}${pathname}`.replace(/\/+$/, "");
  }

  if (globalThis.location) settle();

  return { FRAMED, settle };
})();
