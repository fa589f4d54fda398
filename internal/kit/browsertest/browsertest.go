// Package browsertest looks at pages with a browser.
package browsertest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
)

const frame = `<!DOCTYPE html>
<iframe width="%d" height="%d" src="/page" style="border: 0"></iframe>
<script>
onload = async () => {
  let said;
  try {
    said = await (async (window, document) => {%s})(frames[0], frames[0].document);
  } catch (e) {
    said = String(e);
  }
  fetch("/said", { method: "POST", body: JSON.stringify(said) });
};
</script>`

// Needs skips the test if DMUTEX_BROWSER names no Chromium.
func Needs(t *testing.T) (browser string) {
	t.Helper()
	browser = os.Getenv("DMUTEX_BROWSER")
	if browser == "" {
		t.Skip("DMUTEX_BROWSER names no browser, such as chromium")
	}
	return browser
}

// Look opens a page in a frame of the given size, in the Chromium that DMUTEX_BROWSER names, and
// stores in result what the script returns. The script is the body of an asynchronous function of the frame's
// window and document. Without a browser the test is skipped.
func Look(t *testing.T, page []byte, width, height int, dark bool, script string, result any) {
	t.Helper()
	browser := Needs(t)
	said, ended := make(chan []byte, 1), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) })
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, frame, width, height, script) })
	mux.HandleFunc("POST /said", func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err == nil {
			said <- text
		}
	})
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
		"--window-size=2000,1500", "--touch-events=enabled", fmt.Sprintf("--blink-settings=preferredColorScheme=%d", scheme), server.URL)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var text []byte
	go func() {
		err = cmd.Wait()
		close(ended)
	}()
	select {
	case text = <-said:
		_ = cmd.Process.Signal(os.Interrupt)
		<-ended
	case <-ended:
		t.Fatalf("%v has ended: %v", cmd, err)
	}
	if err := json.Unmarshal(text, result); err != nil {
		t.Fatalf("the script has failed: %s", text)
	}
}
