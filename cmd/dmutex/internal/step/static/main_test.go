package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/browsertest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

var built = sync.OnceValues(build)

// The program is packed into the page, and comes out of it again.
func TestDocument(t *testing.T) {
	page, err := document([]byte("program"), "runtime")
	require.NoError(t, err)
	match := regexp.MustCompile(`<script type="application/wasm" id="program">(.*)</script>`).FindSubmatch(page)
	packed, err := base64.StdEncoding.DecodeString(string(match[1]))
	require.NoError(t, err)
	r, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	program, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "program", string(program))
	require.Contains(t, string(page), "default-src 'none'")
}

// docs/tool.md says how large the file is. A package that is linked by accident, such as regexp or text/template, adds
// 100 kB or more.
func TestSize(t *testing.T) {
	machinetest.Thorough(t)
	page, err := built()
	require.NoError(t, err)
	require.Less(t, len(page), 1_650_000)
}

// drive presses buttons as a reader does, and returns what is seen then.
const drive = `
	const until = (done) => new Promise((go) => {
		const look = () => done() && (watch.disconnect(), go());
		const watch = new window.MutationObserver(look);
		watch.observe(document.documentElement, { childList: true, subtree: true });
		look();
	});
	const shown = () => new Promise((go) => window.addEventListener("hashchange", go, { once: true }));
	const press = async (button) => { const next = shown(); button.click(); await next; };
	const find = (words) => [...document.querySelectorAll("button:not(:disabled)")].find((b) => b.textContent == words || b.ariaLabel == words);
	const count = (what) => document.querySelectorAll(what).length;
	const again = async (times) => { for (let i = 0; i < times; i++) await press(document.activeElement); };
	await until(() => document.querySelector("h1"));
	const seen = { Title: document.querySelector("h1").textContent };

	await press(find("request 1"));
	await press(find("request 2"));
	seen.Picture = count(".picture svg") > 0;
	seen.Focus = document.activeElement.ariaLabel;
	while (find("deliver")) await press(find("deliver"));
	seen.Held = count("li.held");
	const done = () => document.querySelector("[role=status]").textContent.match(/\d+ of \d+ steps/)?.[0] ?? "all";
	await press(find("undo"));
	seen.Undone = done();
	let next = shown();
	window.history.back();
	await next;
	seen.Back = done();

	document.querySelector("select[name=algorithm]").value = "broken";
	await press(find("begin"));
	await press(find("until somebody waits in vain"));
	seen.Clash = count("li.clash");

	await press(find("Maekawa's deadlock"));
	await again(7); // the button that has the focus, as Enter does
	seen.Deadlock = document.querySelector(".wrong").textContent;
	await press(find("the same, resolved"));
	await again(20);
	seen.Resolved = count(".wrong") + count("li.waiting") == 0 && count("li.idle") == 3;

	document.querySelector("textarea[name=script]").value = "group 1 2\nrequest 2\n";
	await press(find("begin from this script"));
	seen.Pasted = document.querySelector("[role=status]").textContent.trim();

	next = shown();
	window.location.hash = "algorithm=central&nodes=4&run=r2&done=1"; // a link
	await next;
	seen.Link = document.querySelector("h1").textContent;
	next = shown();
	window.location.hash = "nodes=<img src=x onerror=alert(1)>&run=%zz";
	await next;
	seen.Problem = document.querySelector(".wrong").textContent;

	seen.Loaded = window.performance.getEntriesByType("resource").length;
	seen.Fits = document.scrollingElement.scrollWidth <= window.innerWidth;
	return seen;`

// The file does all that the page of the server does, and loads nothing: it is the same code.
func TestBrowser(t *testing.T) {
	browsertest.Needs(t)
	page, err := built()
	require.NoError(t, err)
	type seen struct {
		Title, Focus, Undone, Back, Deadlock, Pasted, Link, Problem string
		Held, Clash, Loaded                                         int
		Picture, Resolved, Fits                                     bool
	}
	for _, size := range [][2]int{{360, 740}, {1280, 900}} {
		var got seen
		browsertest.Look(t, page, size[0], size[1], false, drive, &got)
		require.Equal(t, seen{
			Title: "ricart, 3 nodes, messages in order", Focus: "request 3", Picture: true, Held: 1, Undone: "8 of 9 steps", Back: "all", Clash: 2,
			Deadlock: "A rule is broken: deadlock: 1 waits, no node holds the lock and no message is in flight. " +
				"It says: while a node waits, a node is in the critical section, or a message is in flight.",
			Resolved: true, Pasted: "0 of 1 steps are done.",
			Link: "central, 4 nodes, messages in order", Problem: "Not done: nodes is no number.", Fits: true,
		}, got)
	}
}
