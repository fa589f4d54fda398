package quorum

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/quorum"
)

type checkCmd struct {
	File string `arg:"" help:"File with one quorum a line or several as {1,2},{1,3}, or a JSON list of quorums, or a JSON object with a quorum for each site; - is standard input."`
}

func (checkCmd) Help() string {
	return `In a file of lines, blanks or commas separate the sites of a quorum. Braces may stand around them, and what follows # is a comment.

A list of quorums must be a coterie: any two share a site, and none contains another. ` +
		`An object, a quorum for each site, is compared with Maekawa's conditions M1 to M4. Only M1 must hold: any two quorums share a site.

Exit status: 0 if the file is lawful; 1 if not, and each offense is named; 3 if the file cannot be read.`
}

func (c *checkCmd) Run(con *tool.Console) error {
	var text []byte
	var err error
	if c.File == "-" {
		text, err = io.ReadAll(con.In)
	} else {
		text, err = os.ReadFile(c.File)
	}
	if err != nil {
		return err
	}
	f, err := readQuorums(text)
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	if quorums, owners, ok := f.numbers(); ok {
		return judge(con, f.lines, quorums, owners)
	}
	return judge(con, f.lines, f.quorums, f.owners)
}

// A quorumFile is the content of a file, as text.
type quorumFile struct {
	quorums [][]string
	lines   []int    // the line of each quorum, if the file has lines
	owners  []string // the site of each quorum, if the file has an object
}

func readQuorums(text []byte) (*quorumFile, error) {
	switch trimmed := bytes.TrimSpace(text); {
	case len(trimmed) == 0:
		return nil, errors.New("the file is empty; write one quorum a line")
	case trimmed[0] == '[':
		return readList(trimmed)
	case trimmed[0] == '{' && (bytes.ContainsRune(trimmed, ':') && json.Valid(trimmed)):
		return readObject(trimmed)
	}
	return readLines(string(text))
}

// between stands between two quorums on one line.
var between = regexp.MustCompile(`\}[ \t,]+\{`)

func readLines(text string) (*quorumFile, error) {
	f := &quorumFile{lines: []int{}}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }) {
			return nil, fmt.Errorf("line %d: %.60q: this is not text; remove the control characters", i+1, line)
		}
		if strings.HasPrefix(line, "{") != strings.HasSuffix(line, "}") {
			return nil, fmt.Errorf("line %d: %s: close the brace, or leave out both", i+1, line)
		}
		line = strings.TrimSuffix(strings.TrimPrefix(line, "{"), "}")
		for _, q := range between.Split(line, -1) {
			if strings.ContainsAny(q, "{}") {
				return nil, fmt.Errorf("line %d: {%s}: write one quorum a line, or several as {1,2},{1,3}", i+1, line)
			}
			sites := strings.FieldsFunc(q, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\r' })
			for _, site := range sites {
				if strings.HasSuffix(site, ":") {
					return nil, fmt.Errorf("line %d gives a site its quorum; write an assignment as JSON: --assign --json", i+1)
				}
			}
			f.quorums = append(f.quorums, sites)
			f.lines = append(f.lines, i+1)
		}
	}
	if len(f.quorums) == 0 {
		return nil, errors.New("the file has nothing but comments; write one quorum a line")
	}
	return f, nil
}

// sites reads a JSON list of sites: strings, or numbers as they are written.
func sites(text json.RawMessage) ([]string, error) {
	var list []json.RawMessage
	if text[0] != '[' || json.Unmarshal(text, &list) != nil {
		return nil, fmt.Errorf("%s is not a list", text)
	}
	q := make([]string, len(list))
	for i, site := range list {
		switch {
		case site[0] == '"':
			_ = json.Unmarshal(site, &q[i]) // it is valid
		case strings.IndexByte("-0123456789", site[0]) >= 0:
			q[i] = string(site)
		default:
			return nil, fmt.Errorf("%s is not a site; write a string or a number", site)
		}
	}
	return q, nil
}

func readList(text []byte) (f *quorumFile, err error) {
	var list []json.RawMessage
	if err = json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("it is not a list of quorums such as [[1,2],[1,3],[2,3]]: %w", err)
	}
	f = &quorumFile{quorums: make([][]string, len(list))}
	for i, element := range list {
		if f.quorums[i], err = sites(element); err != nil {
			return nil, fmt.Errorf("it is not a list of quorums such as [[1,2],[1,3],[2,3]]: element %d: %w", i+1, err)
		}
	}
	return f, nil
}

// readObject reads the members of a valid object in the order in which they stand.
func readObject(text []byte) (*quorumFile, error) {
	f := &quorumFile{owners: []string{}}
	d := json.NewDecoder(bytes.NewReader(text))
	_, _ = d.Token() // the brace
	for d.More() {
		var list json.RawMessage
		owner, _ := d.Token()
		_ = d.Decode(&list)
		q, err := sites(list)
		if err != nil {
			return nil, fmt.Errorf(`it gives no quorum to site %v, as {"1":[1,2],"2":[2,1]} would: %w`, owner, err)
		}
		f.owners, f.quorums = append(f.owners, owner.(string)), append(f.quorums, q)
	}
	return f, nil
}

// numbers returns the sites as numbers, so that 9 comes before 10, if all of them
// are numbers.
func (f *quorumFile) numbers() (quorums [][]int64, owners []int64, ok bool) {
	for _, names := range slices.Insert(slices.Clone(f.quorums), 0, f.owners) {
		sites := []int64{}
		for _, name := range names {
			n, err := strconv.ParseInt(name, 10, 64)
			if err != nil || strconv.FormatInt(n, 10) != name {
				return nil, nil, false
			}
			sites = append(sites, n)
		}
		quorums = append(quorums, sites)
	}
	if f.owners != nil {
		owners = quorums[0]
	}
	return quorums[1:], owners, true
}

// Numbers reads a list of quorums of nodes, such as {1,2},{1,3}.
func Numbers(list string) ([][]int64, error) {
	f, err := readLines(list)
	if err != nil {
		return nil, err
	}
	quorums, _, ok := f.numbers()
	if !ok {
		return nil, errors.New("the nodes are numbers; write {1,2},{1,3},{2,3}")
	}
	return quorums, nil
}

const named = 100 // offenses, at most

func judge[T cmp.Ordered](out io.Writer, lines []int, quorums [][]T, owners []T) error {
	if owners != nil {
		return judgeAssignment(out, quorums, owners)
	}
	offenses := 0
	for v := range quorum.Check(quorums...) {
		if offenses++; offenses > named {
			continue
		}
		switch {
		case lines == nil || v.First < 0:
		case v.Second < 0, lines[v.First] == lines[v.Second]:
			fmt.Fprintf(out, "line %d: ", lines[v.First])
		default:
			fmt.Fprintf(out, "lines %d and %d: ", lines[v.First], lines[v.Second])
		}
		fmt.Fprintln(out, strings.TrimSuffix(v.Error(), ", or use Minimize"))
	}
	if offenses > 0 {
		if offenses > named {
			fmt.Fprintf(out, "... and %d more\n", offenses-named)
		}
		fmt.Fprintf(out, "not a coterie: %s\n", tool.Several(offenses, "offense"))
		return tool.ErrFailed
	}
	c, err := quorum.New(quorums...)
	if err != nil {
		return err
	}
	return describe(out, c)
}

func describe[T cmp.Ordered](out io.Writer, c quorum.Coterie[T]) error {
	fmt.Fprintf(out, "a coterie: %s over %s\n", tool.Several(c.Len(), "quorum"), tool.Several(len(c.Sites()), "site"))
	fmt.Fprintf(out, "size          %s\n", span(c.Size()))
	fmt.Fprintf(out, "load          %s\n", bounds(c.Load()))
	fmt.Fprintf(out, "resilience    %s\n", span(c.Resilience()))
	for _, p := range []float64{0.9, 0.99} {
		a, err := c.Availability(p)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "availability  %s when a site is up with p = %v\n", estimate(a), p)
	}
	gap, err := c.Gap()
	switch {
	case err != nil:
		fmt.Fprintf(out, "dominated     not known: %v\n", err)
	case gap == nil:
		fmt.Fprintln(out, "dominated     no")
	default:
		fmt.Fprintf(out, "dominated     yes: neither these sites nor all others have a quorum: ")
		writeQuorum(out, gap)
	}
	a, err := c.Assign()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "a quorum for each site, by Maekawa's conditions:\n%v", a.Report())
	return nil
}

func judgeAssignment[T cmp.Ordered](out io.Writer, quorums [][]T, owners []T) error {
	var entries []quorum.Entry[T]
	for i, q := range quorums {
		entries = append(entries, quorum.Entry[T]{Site: owners[i], Quorum: q})
	}
	a, err := quorum.NewAssignment(entries...)
	if err != nil {
		fmt.Fprintln(out, err)
		return tool.ErrFailed
	}
	r := a.Report()
	fmt.Fprintf(out, "an assignment of quorums to %s\n%v", tool.Several(len(owners), "site"), r)
	if len(r.Disjoint) > 0 {
		return tool.ErrFailed
	}
	return nil
}

// span writes 3, or 3-5.
func span(low, high int) string {
	if low == high {
		return strconv.Itoa(low)
	}
	return strconv.Itoa(low) + "-" + strconv.Itoa(high)
}

func bounds(low, high float64) string {
	if low == high {
		return fmt.Sprintf("%.4f", low)
	}
	return fmt.Sprintf("%.4f-%.4f", low, high)
}

// estimate writes a probability, and for a sampled one how far it may be off.
func estimate(e quorum.Estimate) string {
	if e.Samples == 0 {
		return fmt.Sprintf("%.6f", e.Value)
	}
	return fmt.Sprintf("%.5f±%.5f", e.Value, max(e.Value-e.Low, e.High-e.Value))
}
