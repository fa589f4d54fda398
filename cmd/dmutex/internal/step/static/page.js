// The address after # is what the server gets after ?: page returns the body for it.
const show = () => {
  document.body.innerHTML = page(location.hash.slice(1));
  document.querySelector("[autofocus]")?.focus();
};
addEventListener("hashchange", show);
addEventListener("submit", (e) => {
  e.preventDefault();
  location.hash = new URLSearchParams(new FormData(e.target, e.submitter));
});
try {
  const packed = Uint8Array.from(atob(document.getElementById("program").text), (c) => c.charCodeAt(0));
  const program = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const go = new Go();
  go.run((await WebAssembly.instantiate(await new Response(program).arrayBuffer(), go.importObject)).instance);
  show();
} catch (e) {
  document.body.textContent = `This browser cannot run the page: ${e}. The command dmutex step serves one that needs no JavaScript.`;
}
