package draw_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/draw"
	"github.com/dmutex/dmutex/internal/kit/browsertest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport/memlink"
)

// busy returns the traces of five nodes that hold a lock for a short time each, one after the
// other, with long fences.
func busy(t *testing.T) (traces []*trace.Trace) {
	files := make([]bytes.Buffer, 5)
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{Seed: 1, MinDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond})
		require.NoError(t, err)
		var nodes []*node.Node
		for i := range files {
			n, err := node.OpenStrict(t.Context(), dmutex.NodeID(i+1), []dmutex.NodeID{1, 2, 3, 4, 5}, net.Link(dmutex.NodeID(i+1)), node.Config{
				Algorithm: ricart.New, Trace: trace.NewRecorder(&files[i]), Fence: 1 << 59,
			})
			require.NoError(t, err)
			nodes = append(nodes, n)
		}
		var all sync.WaitGroup
		for i, n := range nodes {
			all.Go(func() {
				for k := range 30 {
					h, err := n.Mutex("x").Acquire(t.Context())
					require.NoError(t, err)
					time.Sleep(time.Duration((i+k)%4) * time.Millisecond)
					require.NoError(t, h.Release())
				}
			})
		}
		all.Wait()
		for _, n := range nodes {
			all.Go(func() { require.NoError(t, n.Close(t.Context())) })
		}
		all.Wait()
	})
	for i := range files {
		traces = append(traces, read(t, files[i].String())...)
	}
	return traces
}

// In a browser no labels overlap in wide and narrow fonts that are there, five nodes fill the window, and mouse, touch and keys move
// and zoom. The test needs DMUTEX_BROWSER.
func TestBrowser(t *testing.T) {
	const look = `
		const strip = document.querySelector("section:not([hidden]) .strip"), what = document.querySelector("#what");
		const overlaps = [], widths = {}, face = document.head.appendChild(document.createElement("style"));
		const tiles = [...strip.querySelectorAll(".tile svg")];
		for (const font of ["DejaVu Sans", "Verdana", "Helvetica", "Liberation Sans", "DejaVu Sans Condensed", "Liberation Sans Narrow", ""]) {
			face.textContent = font && "svg { font-family: '" + font + "', sans-serif }";
			widths[font || "of the page"] = tiles[0].querySelector("text:not(.paper)").getBBox().width;
			for (const svg of tiles) {
				const boxes = [...svg.querySelectorAll("text:not(.paper)")].map((text) => [text.textContent, text.getBBox()]).sort((a, b) => a[1].x - b[1].x);
				boxes.forEach(([a, p], i) => {
					for (let k = i + 1; k < boxes.length && boxes[k][1].x < p.x + p.width - 0.5; k++) {
						const [b, q] = boxes[k]; // a box has the height of a line, which is more than that of its letters
						if (Math.min(p.y + p.height, q.y + q.height) - Math.max(p.y, q.y) > 2.5) overlaps.push(font + ": " + a + " and " + b);
					}
				});
			}
		}
		const filled = strip.getBoundingClientRect().bottom / window.innerHeight;
		const did = {};
		const state = () => ({ wide: strip.scrollWidth, left: strip.scrollLeft, what: what.textContent });
		const act = (name, f, of) => { const before = of(state()); f(); did[name] = of(state()) - before; };
		const key = (key, shiftKey) => () => strip.dispatchEvent(new window.KeyboardEvent("keydown", { key, shiftKey, bubbles: true }));
		const wide = (s) => s.wide, left = (s) => s.left;
		strip.scrollLeft = 300;
		act("plus", key("+"), wide);
		act("minus", key("-"), wide);
		act("right", key("ArrowRight"), left);
		act("page", key("ArrowRight", true), left);
		act("arrowLeft", key("ArrowLeft"), left);
		const mouse = (type, x) => (type == "pointerdown" ? strip : window).dispatchEvent(new window.PointerEvent(type, { clientX: x, clientY: 9, pointerType: "mouse", bubbles: true }));
		act("drag", () => { mouse("pointerdown", 500); mouse("pointermove", 400); mouse("pointerup", 400); mouse("pointermove", 300); }, left);
		act("wheel", () => strip.dispatchEvent(new window.WheelEvent("wheel", { deltaY: -100, ctrlKey: true, clientX: 400, cancelable: true })), wide);
		const touch = (type, gap) => strip.dispatchEvent(new window.TouchEvent(type, { cancelable: true,
			touches: [400, 400 + gap].map((clientX, identifier) => new window.Touch({ identifier, clientX, clientY: 9, target: strip })) }));
		act("pinch", () => { touch("touchstart", 100); touch("touchmove", 50); }, wide);
		act("home", key("Home"), left);
		act("end", key("End"), left);
		key("0")();
		const fit = strip.getBoundingClientRect().bottom / window.innerHeight;
		const click = () => document.querySelector("#next").click();
		const read = [key("n"), key("n"), key("p"), click].map((f) => { f(); return what.textContent; });
		return { overlaps, widths, filled, fit, did, read, labels: strip.querySelectorAll("text").length, width: document.documentElement.scrollWidth };
	`
	traces := busy(t)
	for _, tt := range []struct {
		traces        []*trace.Trace
		width, height int
		first         string
	}{{traces, 1400, 900, "REQUEST attempt=1"}, {traces, 360, 740, "REQUEST attempt=1"}, {restart(t), 1400, 900, "3->1 REQUEST attempt=1"}} {
		var v struct {
			Overlaps, Read []string
			Filled, Fit    float64
			Did, Widths    map[string]float64
			Labels, Width  int
		}
		page := drawn(t, tt.traces, draw.Options{Title: strings.Repeat("M", 100)}).HTML()
		browsertest.Look(t, page, tt.width, tt.height, false, look, &v)

		t.Logf("the first label is so wide in each font: %v", v.Widths) // a font that is not there is as sans-serif
		require.Empty(t, v.Overlaps)
		require.Greater(t, v.Labels, 50)
		require.LessOrEqual(t, v.Width, tt.width, "the page scrolls to the side")
		if len(tt.traces) == 5 {
			require.InDelta(t, 1, v.Filled, 0.1)
			require.InDelta(t, 1, v.Fit, 0.1)
		}
		for _, more := range []string{"plus", "right", "page", "drag", "wheel", "end"} {
			require.Positive(t, v.Did[more], more)
		}
		for _, less := range []string{"minus", "arrowLeft", "pinch", "home"} {
			require.Negative(t, v.Did[less], less)
		}
		require.InDelta(t, 100, v.Did["drag"], 1)
		require.Greater(t, v.Did["page"], v.Did["right"])
		require.Contains(t, v.Read[0], tt.first)
		require.NotEqual(t, v.Read[0], v.Read[1])
		require.Equal(t, v.Read[:2], v.Read[2:])
	}
}
