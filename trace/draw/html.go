package draw

import "strings"

// HTML returns the drawing as a page of its own, which needs no other file and
// no network. A message under the pointer stands out.
func (d *Drawing) HTML() []byte {
	title := d.options.Title
	if title == "" {
		title = "dmutex trace"
	}
	return []byte(strings.NewReplacer("{title}", escape(title), "{svg}", d.svg(` id="drawing"`)).Replace(page))
}

const page = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body { margin: 0; background: #ffffff; font-family: Helvetica, Arial, sans-serif; font-size: 14px; }
#bar { position: fixed; bottom: 0; left: 0; right: 0; padding: 6px 12px; background: #f2f2f2; border-top: 1px solid #cccccc; min-height: 20px; }
#bar button { font-size: 14px; width: 28px; margin-right: 4px; }
#view { padding-bottom: 48px; }
.m:hover path { stroke-width: 4; }
</style>
</head>
<body>
<div id="view">
{svg}</div>
<div id="bar"><button id="out" title="smaller">-</button><button id="in" title="larger">+</button><span id="what">Point at a message or a bar.</span></div>
<script>
"use strict";
const drawing = document.getElementById("drawing"), what = document.getElementById("what");
const width = drawing.width.baseVal.value, height = drawing.height.baseVal.value;
let scale = 1;
function zoom(by) {
  scale = Math.min(8, Math.max(0.125, scale * by));
  drawing.setAttribute("width", width * scale);
  drawing.setAttribute("height", height * scale);
}
document.getElementById("in").onclick = () => zoom(1.25);
document.getElementById("out").onclick = () => zoom(0.8);
drawing.addEventListener("mouseover", (e) => {
  const title = e.target.closest("svg :has(> title)")?.querySelector("title");
  if (title) what.textContent = title.textContent;
});
</script>
</body>
</html>
`
