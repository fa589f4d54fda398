package byhand

import (
	_ "embed"
	"errors"
	"fmt"
	"html"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/draw"
)

//go:embed page.css
var style string

// deadlock is the run on which the arbiters of Maekawa's algorithm deadlock, and how the corrected algorithm goes on.
//
//go:embed deadlock.txt
var deadlock string

// Document returns a whole page around the body. head is added to its head.
func Document(head, body string) string {
	return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>dmutex step</title>
<style>
` + style + `</style>
` + head + `</head>
<body>
` + body + `</body>
</html>
`
}

// A page is the body of a page as it is written.
type page struct {
	strings.Builder
	run     Run
	world   *world
	seed    uint64
	problem string // why what was asked for was not done
	said    string
	pasted  string // a script that was refused
	focus   string // what the reader has done last, and may do again
}

// Page returns the body of the page for the fields of a form, or of an address:
//
//	algorithm=maekawa nodes=3 order=unordered   a new group; or
//	begin=group 1 2 3;network fifo              as the beginning of a script, with semicolons
//	script=...                                  a run to begin from
//	run=r1r2d0 done=2                           the steps, and how many of them are done
//	do=r3                                       one more step; or undo, redo, first, last, random and trouble
//	seed=7                                      of random
//
// The page carries these along. An error is on the page, too.
func Page(fields url.Values) (body string, err error) {
	p := &page{}
	p.run, err = p.read(fields)
	if err == nil {
		var next Run
		if next, err = p.act(fields.Get("do")); err == nil {
			p.world, err = next.world()
		}
		if err == nil {
			p.run = next
		}
	}
	if err != nil {
		p.problem = err.Error()
		var again error
		if p.world, again = p.run.world(); again != nil { // the run itself is what is wrong
			p.run, _ = New(p.run.Algorithm, 3, false)
			p.world, _ = p.run.world()
		}
	}
	p.write()
	return p.String(), err
}

// read returns the run of the fields.
func (p *page) read(fields url.Values) (r Run, err error) {
	r.Algorithm, _ = Find(catalog.Default("ricart"))
	size := 0
	for key, values := range fields {
		size += len(key) + len(strings.Join(values, ""))
	}
	if size > MostText {
		return r, fmt.Errorf("a page has at most %d bytes", MostText)
	}
	whole := func(name string, otherwise int) int {
		n, wrong := strconv.Atoi(fields.Get(name))
		switch {
		case fields.Get(name) == "":
			return otherwise
		case wrong != nil:
			err = errors.Join(err, fmt.Errorf("%s is no number", name))
		}
		return n
	}
	if name := fields.Get("algorithm"); name != "" {
		known, err := Find(name)
		if err != nil {
			return r, err
		}
		r.Algorithm = known
	}
	if script := fields.Get("script"); strings.TrimSpace(script) != "" {
		p.focus, p.pasted = "redo", script
		read, err := Read(r.Algorithm, script)
		if err != nil {
			return r, err
		}
		p.pasted = ""
		return read, nil
	}
	nodes, done := whole("nodes", 3), whole("done", 0)
	p.seed, _ = strconv.ParseUint(fields.Get("seed"), 10, 64)
	if err != nil {
		return r, err
	}
	if text := fields.Get("begin"); text != "" {
		r.group, err = parseSetup(text)
	} else {
		r.group, err = newSetup(nodes, fields.Get("order") == "unordered")
	}
	if err == nil {
		r.steps, err = decode(fields.Get("run"))
	}
	if err == nil && (done < 0 || done > len(r.steps)) {
		err = fmt.Errorf("%d of %d steps cannot be done", done, len(r.steps))
	}
	if err != nil {
		return r, err
	}
	r.done = done
	for line := range strings.Lines(fields.Get("notes")) {
		at, note, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch k, err := strconv.Atoi(at); {
		case err != nil || k < 0 || k > len(r.steps):
		case k == len(r.steps):
			r.closing = note
		default:
			r.steps[k].note = note
		}
	}
	return r, nil
}

// act returns the run after what the reader does.
func (p *page) act(do string) (Run, error) {
	r := p.run
	if do != "" {
		p.focus = do
	}
	switch do {
	case "":
		return r, nil
	case "undo":
		r.done = max(0, r.done-1)
		return r, nil
	case "redo":
		r.done = min(len(r.steps), r.done+1)
		return r, nil
	case "first":
		r.done = 0
		return r, nil
	case "last":
		r.done = len(r.steps)
		return r, nil
	}
	w, err := r.world()
	if err != nil {
		return r, err
	}
	chance := rand.New(rand.NewPCG(p.seed, uint64(r.done)))
	p.seed++
	switch do {
	case "random":
		s, ok := w.random(chance)
		if !ok {
			return r, errors.New("nothing can happen any more")
		}
		return r.with(s)
	case "trouble":
		found := w.trouble(chance)
		if found == nil {
			p.said = fmt.Sprintf("In %d random runs of %d steps from here no node waits in vain, and no two are in the critical section.", walks, walk)
			return r, nil
		}
		p.said = fmt.Sprintf("Found after %d random steps. Undo goes back through them.", len(found))
		return r.with(found...)
	}
	s, err := decode(do)
	if err != nil || len(s) != 1 {
		return r, fmt.Errorf("nobody can do %.20q", do)
	}
	p.focus = s[0].do
	if err := w.do(s[0]); err != nil {
		return r, err
	}
	return r.with(s[0])
}

// put writes markup. The arguments are escaped, so no text of a script or a machine is markup, also not in a
// quoted attribute.
func (p *page) put(format string, args ...any) {
	for i, a := range args {
		args[i] = html.EscapeString(fmt.Sprint(a))
	}
	fmt.Fprintf(p, format, args...)
}

// button writes a button that does something, with a name that can be read alone. The first of those that do what
// was done last has the focus, so that Enter does it again.
func (p *page) button(do, kind, words, name string, can bool) {
	p.put(`<button name="do" value="%s"`, do)
	if name != "" {
		p.put(` aria-label="%s"`, name)
	}
	switch {
	case !can:
		p.WriteString(" disabled")
	case kind == p.focus:
		p.WriteString(" autofocus")
		p.focus = ""
	}
	p.put(">%s</button>\n", words)
}

func (p *page) write() {
	script := p.world.golden()
	p.put("<main>\n<h1>%s, %v nodes, messages %s</h1>\n", p.run.Algorithm.Name, len(p.world.nodes), order(p.run.group.unordered))
	p.put("<p>%s.</p>\n", p.run.Algorithm.About)
	p.begin()
	p.ready()
	p.WriteString(`<form method="get" action="">` + "\n")
	for _, field := range [][2]string{
		{"algorithm", p.run.Algorithm.Name}, {"begin", p.run.group.String()}, {"run", encode(p.run.steps)}, {"done", strconv.Itoa(p.run.done)},
		{"notes", p.notes()}, {"seed", strconv.FormatUint(p.seed, 10)},
	} {
		if field[1] != "" && field[1] != "0" {
			p.put(`<input type="hidden" name="%s" value="%s">`+"\n", field[0], field[1])
		}
	}
	p.WriteString(`<p class="steps">` + "\n")
	p.button("first", "first", "to the beginning", "", p.run.done > 0)
	p.button("undo", "undo", "undo", "", p.run.done > 0)
	p.button("redo", "redo", "next step", "", p.run.done < len(p.run.steps))
	p.button("last", "last", "to the end", "", p.run.done < len(p.run.steps))
	p.button("random", "random", "random step", "", len(p.world.options()) > 0)
	p.button("trouble", "trouble", "until somebody waits in vain", "", len(p.world.options()) > 0)
	p.WriteString("</p>\n")
	p.verdict(script)
	p.machines()
	p.flights()
	p.WriteString("</form>\n<h2>The run</h2>\n")
	p.picture()
	p.put("<label>As a golden script, to copy into a test:\n<textarea readonly rows=\"%v\" cols=\"80\">\n%s</textarea></label>\n", min(30, strings.Count(script, "\n")+1), script)
	p.paste()
	p.WriteString("</main>\n")
}

func order(unordered bool) string {
	if unordered {
		return "in any order"
	}
	return "in order"
}

// notes are what a script says before its steps and after them, for the next page.
func (p *page) notes() string {
	var all []string
	for k, s := range p.run.steps {
		if s.note != "" {
			all = append(all, fmt.Sprint(k, " ", s.note))
		}
	}
	if p.run.closing != "" {
		all = append(all, fmt.Sprint(len(p.run.steps), " ", p.run.closing))
	}
	return strings.Join(all, "\n")
}

func (p *page) choice() {
	p.WriteString(`<label>Algorithm <select name="algorithm">` + "\n")
	for _, a := range Algorithms() {
		selected := ""
		if a.Name == p.run.Algorithm.Name {
			selected = " selected"
		}
		p.put("<option"+selected+">%s</option>\n", a.Name)
	}
	p.WriteString("</select></label>\n")
}

// begin is the form for another group.
func (p *page) begin() {
	p.WriteString(`<form method="get" action="" class="begin">` + "\n")
	p.choice()
	p.WriteString(`<label>Nodes <select name="nodes">` + "\n")
	for n := 2; n <= mostNodes; n++ {
		selected := ""
		if n == len(p.world.nodes) {
			selected = " selected"
		}
		p.put("<option"+selected+">%v</option>\n", n)
	}
	p.WriteString("</select></label>\n" + `<label>Messages <select name="order">` + "\n")
	for _, unordered := range []bool{false, true} {
		value, selected := "fifo", ""
		if unordered {
			value = "unordered"
		}
		if unordered == p.run.group.unordered {
			selected = " selected"
		}
		p.put(`<option value="%s"`+selected+">%s</option>\n", value, order(unordered))
	}
	p.WriteString("</select></label>\n<button>begin</button>\n</form>\n")
}

// ready are the buttons for runs that are worth following.
func (p *page) ready() {
	stuck, _, _ := strings.Cut(deadlock, "deliver 1->2 FAILED") // which nobody has sent there
	p.WriteString("<div class=\"ready\">Runs to follow:\n")
	for _, r := range []struct{ algorithm, words, script string }{
		{"maekawa-plain", "Maekawa's deadlock", stuck},
		{"maekawa", "the same, resolved", deadlock},
	} {
		p.put(`<form method="get" action=""><input type="hidden" name="algorithm" value="%s"><button name="script" value="%s">%s</button></form>`+"\n", r.algorithm, r.script, r.words)
	}
	p.WriteString("</div>\n")
}

// rules explain the rules that a script names.
var rules = map[string]string{
	"mutual exclusion": "two nodes are in the critical section only if both share the lock",
	"fence order":      "of two grants the later has the higher fence",
	"deadlock":         "while a node waits, a node is in the critical section, or a message is in flight",
	"left behind":      "when all is done, nothing is left over",
	"holder not found": "what a waiting node says it waits for leads to the holder",
}

// verdict says what has happened, and what is wrong.
func (p *page) verdict(script string) {
	p.WriteString(`<div role="status">` + "\n")
	if p.problem != "" {
		p.put("<p class=\"wrong\">Not done: %s.</p>\n", p.problem)
	}
	if p.said != "" {
		p.put("<p>%s</p>\n", p.said)
	}
	rule := broken(script)
	name, _, _ := strings.Cut(rule, ":")
	if ids := p.world.clash(); len(ids) > 0 {
		p.put("<p class=\"wrong\">Nodes %s are in the critical section at the same time. The rule that is broken: mutual exclusion, %s.</p>\n",
			strings.Trim(fmt.Sprint(ids), "[]"), rules["mutual exclusion"])
	} else if rule != "" {
		p.put("<p class=\"wrong\">A rule is broken: %s.", rule)
		if rules[name] != "" {
			p.put(" It says: %s.", rules[name])
		}
		p.WriteString("</p>\n")
	}
	if id, why := p.world.vain(); id != dmutex.None && name != "deadlock" {
		p.put("<p class=\"wrong\">Node %s waits in vain: %s.</p>\n", id, why)
	}
	if k := p.run.done; k < len(p.run.steps) {
		p.put("<p>%v of %v steps are done.", k, len(p.run.steps))
		if note := p.run.steps[k].note; note != "" {
			p.put(" Next: %s", note)
		}
		p.WriteString("</p>\n")
	} else if p.run.closing != "" {
		p.put("<p>%s</p>\n", p.run.closing)
	}
	if what := happened(script); what != "" {
		p.put("<pre>%s</pre>\n", what)
	} else if p.run.done > 0 {
		p.WriteString("<p>Nothing is sent.</p>\n")
	}
	p.WriteString("</div>\n")
}

// machines shows the nodes, and what each may do.
func (p *page) machines() {
	p.WriteString("<h2>Nodes</h2>\n<ol class=\"nodes\">\n")
	clash := p.world.clash()
	for _, n := range p.world.nodes {
		m := n.machine
		class, is := m.Phase().String(), m.Phase().String()
		switch {
		case slices.Contains(clash, n.id):
			class = "clash"
			is = "in the critical section, and not alone"
		case sharing(m):
			is = "shares the critical section"
		case m.Phase() == dmutex.Held:
			is = "in the critical section"
		case m.Phase() == dmutex.Idle && m.Pending():
			is = "idle, its request is withdrawn"
		}
		if m.Phase() == dmutex.Held {
			is += fmt.Sprint(", fence ", m.Fence())
		}
		if n.crashed {
			class += " crashed"
			is = "crashed; it was " + is
		}
		text, _ := m.AppendText(nil)
		p.put("<li class=\"%s\"><h3>node %s</h3>\n<p>%s</p>\n<code>%s</code>\n<p>\n", class, n.id, is, string(text))
		if !n.crashed {
			p.inputs(n)
		}
		p.WriteString("</p></li>\n")
	}
	p.WriteString("</ol>\n")
}

func (p *page) inputs(n node) {
	can := func(do string) {
		p.button(encode([]step{{do: do, at: uint64(n.id)}}), do, do, fmt.Sprint(do, " ", n.id), true)
	}
	switch n.machine.Phase() {
	case dmutex.Idle:
		can("request")
		if _, ok := n.machine.(dmutex.Sharer); ok {
			can("share")
		}
	case dmutex.Waiting:
		can("cancel")
	case dmutex.Held:
		can("release")
	}
	if _, ok := n.machine.(dmutex.Ticker); ok {
		can("tick")
	}
	can(crash)
}

// flights shows what is in flight, oldest first.
func (p *page) flights() {
	p.WriteString("<h2>In flight</h2>\n")
	if len(p.world.wire) == 0 {
		p.WriteString("<p>No message is in flight.</p>\n")
		return
	}
	p.WriteString("<ol class=\"flights\">\n")
	for k, f := range p.world.wire {
		p.put("<li><code>%s</code>\n", f)
		for _, do := range [][2]string{{deliver, "deliver"}, {duplicate, "deliver, and keep a copy"}, {lose, "lose"}} {
			p.button(encode([]step{{do: do[0], at: uint64(k)}}), do[0], do[1], fmt.Sprint(do[1], ": ", f), p.world.next(k))
		}
		p.WriteString("</li>\n")
	}
	p.WriteString("</ol>\n")
}

// picture draws the run.
func (p *page) picture() {
	if p.run.done == 0 {
		p.WriteString("<p>Nothing has happened yet. After a step its button has the focus: Enter does it again, Tab goes to the next one.</p>\n")
		return
	}
	d, err := draw.New(p.world.traces, draw.Options{Width: 1100})
	if err != nil {
		p.put("<p>There is no picture: %s.</p>\n", err)
		return
	}
	p.WriteString(`<div class="picture" tabindex="0" role="region" aria-label="space-time diagram of the run">` + "\n")
	p.Write(d.SVG()) // which escapes its texts
	p.WriteString("</div>\n")
}

// paste is the form for a script.
func (p *page) paste() {
	p.put(`<h2>Begin from a script</h2>
<form method="post" action="">
`)
	p.choice()
	p.put("<label>A script, or the counterexample of dmutex check:\n<textarea name=\"script\" rows=\"8\" cols=\"80\">\n%s</textarea></label>\n<button>begin from this script</button>\n</form>\n", p.pasted)
}
