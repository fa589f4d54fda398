package nodehttp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/browsertest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/memlink"
)

// crowd returns the page of a node with 1,000 locks of long and hostile names, and a peer that
// is gone.
func crowd(t *testing.T) (page string) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		var nodes []*node.Node
		for id := range dmutex.NodeID(3) {
			n, err := node.OpenStrict(t.Context(), id+1, []dmutex.NodeID{1, 2, 3}, net.Link(id+1), node.Config{
				Name: strings.Repeat("W", 60) + fmt.Sprint(id), // without a place to break
			})
			require.NoError(t, err)
			nodes = append(nodes, n)
		}
		require.NoError(t, nodes[0].Ready(t.Context()))
		crash(net, nodes, 3)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 1000 {
			name := fmt.Sprintf("tenants/%03d/<script>alert(1)</script>/%s", i, strings.Repeat("\u202eorders", i%20))
			go func() { _, _ = nodes[0].Mutex(name).Acquire(ctx) }() // a third needs the peer
		}
		time.Sleep(5 * time.Second)
		page = get(nodes[0], "/?limit=1000", nil).Body.String()
		require.Contains(t, page, ", silent for 5")
		cancel()
		for _, n := range nodes {
			_ = n.Close(ctx)
		}
	})
	return page
}

// The page fits phones and desktops, in all states, and all its text has enough contrast in light and in dark
// mode. It needs DMUTEX_BROWSER.
func TestBrowser(t *testing.T) {
	const look = `
		const lum = (c) => {
			const [r, g, b] = c.map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
			return 0.2126 * r + 0.7152 * g + 0.0722 * b;
		};
		const rgb = (text) => text.match(/[\d.]+/g).map(Number);
		const paper = (e) => {
			const c = rgb(window.getComputedStyle(e).backgroundColor);
			return c.length == 4 && c[3] == 0 ? paper(e.parentElement) : c.slice(0, 3);
		};
		let faint = "", locks = 0;
		const walk = document.createTreeWalker(document.body, 4);
		while (walk.nextNode()) {
			const e = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
			if (!text) continue;
			const [dim, bright] = [lum(rgb(window.getComputedStyle(e).color).slice(0, 3)), lum(paper(e))].sort((a, b) => a - b);
			if ((bright + 0.05) / (dim + 0.05) < 4.5) faint = text;
			const box = e.getBoundingClientRect();
			if (e.matches("tbody th.name") && box.width > 60 && box.left >= 0 && box.right <= window.innerWidth) locks++;
		}
		return { width: document.documentElement.scrollWidth, faint, locks, scripts: document.scripts.length, dark: lum(paper(document.body)) < 0.5,
			heads: [...document.querySelectorAll("thead th")].filter((th) => th.scope == "col").length };
	`
	page := crowd(t)
	for _, tt := range []struct {
		width int
		dark  bool
	}{{360, false}, {430, true}, {800, true}, {1280, false}} {
		var v struct {
			Width, Locks, Scripts, Heads int
			Faint                        string
			Dark                         bool
		}
		browsertest.Look(t, []byte(page), tt.width, 740, tt.dark, look, &v)
		require.LessOrEqual(t, v.Width, tt.width, "it scrolls to the side")
		require.Empty(t, v.Faint, "the contrast is low")
		require.Equal(t, tt.dark, v.Dark)
		require.Equal(t, 1000, v.Locks)
		require.Zero(t, v.Scripts)
		require.Equal(t, 6+9, v.Heads)
	}
	pages := states(t)
	for state, width := range map[string]int{"calm": 1280, "crowd": 1280, "crash": 360} {
		var v struct {
			Width int
			Faint string
		}
		browsertest.Look(t, []byte(pages[state]), width, 740, width == 360, look, &v)
		require.LessOrEqual(t, v.Width, width, "%s: it scrolls to the side", state)
		require.Empty(t, v.Faint, "%s: the contrast is low", state)
	}
}
