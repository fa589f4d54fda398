// Package browsertest looks at pages with a browser.
package browsertest

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"testing"
)

const frame = `<!DOCTYPE html>
<iframe width="%d" height="%d" src="/page" style="border: 0"></iframe><pre></pre>
<script>
onload = async () => {
  let said;
  try {
    said = await (async (window, document) => {%s})(frames[0], frames[0].document);
  } catch (e) {
    said = String(e);
  }
  document.querySelector("pre").textContent = JSON.stringify(said);
};
</script>`

var said = regexp.MustCompile(`(?s)<pre>(.*)</pre>`)

// Look opens a page in a frame of the given size, in the Chromium that DMUTEX_BROWSER names, and
// stores in result what the script returns. The script is the body of a function of the frame's
// window and document. Without DMUTEX_BROWSER the test is skipped.
func Look(t *testing.T, page []byte, width, height int, dark bool, script string, result any) {
	t.Helper()
	browser := os.Getenv("DMUTEX_BROWSER")
	if browser == "" {
		t.Skip("DMUTEX_BROWSER names no browser, such as chromium")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, frame, width, height, script) })
	server := httptest.NewServer(mux)
	defer server.Close()
	profile, err := os.MkdirTemp("", "browser")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(profile) // processes of the browser may still write there
	scheme := 1
	if dark {
		scheme = 0
	}
	// The sandbox needs rights that a container does not have, and the pages are our own.
	cmd := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+profile,
		"--window-size=2000,1500", "--touch-events=enabled", fmt.Sprintf("--blink-settings=preferredColorScheme=%d", scheme),
		"--virtual-time-budget=20000", "--dump-dom", server.URL)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	match := said.FindSubmatch(out)
	if match == nil {
		t.Fatalf("the frame has said nothing: %s", out)
	}
	text := html.UnescapeString(string(match[1]))
	if err := json.Unmarshal([]byte(text), result); err != nil {
		t.Fatalf("the script has failed: %s", text)
	}
}
