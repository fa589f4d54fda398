package repotest

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/dmutex/dmutex"

type layer struct {
	name string
	pure bool
	may  []string
}

// rows is the house, from the ground up. A row is a directory with all below it: whether it
// is pure, and which of the rows above it in this table it may import.
var rows = []layer{
	// The card: what each algorithm is to its driver.
	{"internal/mistake", true, nil},
	{"internal/canon", true, nil},
	{".", true, []string{"internal/canon", "internal/mistake"}},
	{"site", true, []string{".", "internal/canon"}},

	// Machines. None of these may import another.
	{"quorum", true, nil},
	{"central", true, []string{".", "internal/canon", "site"}},
	{"lamport", true, []string{".", "site"}},
	{"maekawa", true, []string{".", "internal/canon", "site"}},
	{"ricart", true, []string{".", "site"}},
	{"ring", true, []string{".", "internal/canon", "site"}},
	{"suzukikasami", true, []string{".", "site"}},
	{"election", true, []string{".", "internal/canon"}},
	{"deadlock", true, []string{".", "internal/canon"}},

	// Links, and what a pair of processes says to each other.
	{"internal/latelog", false, nil},
	{"internal/clock", false, nil},
	{"internal/outside", false, []string{"internal/clock"}},
	{"internal/names", true, nil},
	{"internal/due", true, nil},
	{"internal/timers", true, []string{"internal/due"}},
	{"internal/leases", true, []string{"internal/due"}},
	{"internal/epochs", true, nil},
	{"internal/protocol", true, nil},
	{"transport", false, []string{".", "internal/clock", "internal/latelog", "internal/outside"}},
	{"lock", false, nil},
	{"internal/wire", false, []string{"internal/mistake"}},
	{"internal/message", false, []string{".", "internal/wire", "lock"}},
	{"internal/stream", true, []string{".", "internal/due", "internal/protocol", "internal/timers"}},
	{"internal/mail", false, []string{".", "internal/clock", "internal/due", "internal/protocol", "internal/stream", "transport"}},
	{"transport/channel", false, []string{".", "internal/mail", "internal/message", "internal/stream", "transport"}},
	{"transport/linktest", false, []string{".", "transport", "transport/channel"}},

	// What tests and explores machines.
	{"trace", false, []string{"."}},
	{"internal/search", false, nil},
	{"internal/goldentest", false, []string{"internal/search"}},
	{"dmutextest", false, []string{".", "internal/goldentest", "internal/search", "trace"}},
	{"internal/chase", true, []string{"."}},
	{"internal/deadlocktest", false, []string{".", "deadlock", "internal/chase", "dmutextest", "internal/search"}},
	{"internal/electiontest", false, []string{".", "dmutextest", "election", "internal/search"}},
	{"internal/child", false, nil},

	// A lock service.
	{"internal/hold", false, []string{"internal/clock", "internal/leases", "internal/mistake", "lock"}},
	{"lock/fence", false, nil},
	{"lock/locktest", false, []string{"internal/clock", "internal/hold", "internal/leases", "internal/mistake", "lock"}},
	{"lock/semaphore", false, []string{".", "internal/hold", "internal/mistake", "lock"}},
	{"internal/onerequest", false, nil},
	{"store", false, []string{"internal/onerequest"}},
	{"internal/storecall", false, nil},
	{"internal/recordtext", true, nil},
	{"internal/lockrecord", true, []string{"internal/due", "internal/leases", "internal/names", "internal/recordtext"}},
	{"store/storelock", false, []string{"internal/clock", "internal/epochs", "internal/hold", "internal/leases", "internal/lockrecord", "internal/names", "internal/storecall", "lock", "store"}},
	{"internal/membership", true, []string{".", "internal/canon", "internal/protocol"}},
	{"internal/membership/carryover", true, []string{".", "internal/membership"}},
	{"internal/membership/consent", true, []string{".", "internal/canon", "internal/due", "internal/epochs", "internal/membership", "internal/protocol"}},
	{"internal/membership/lease", true, []string{".", "internal/due", "internal/epochs", "internal/leases", "internal/membership", "internal/names", "internal/protocol", "internal/recordtext"}},
	{"internal/clientsession", true, []string{"internal/due", "internal/leases", "internal/protocol"}},
	{"internal/clientlink", false, []string{"internal/clientsession", "internal/mistake", "internal/names", "internal/wire", "lock"}},
	{"internal/lend", false, []string{"internal/clientlink", "internal/clientsession", "internal/clock", "internal/protocol", "lock"}},
	{"client", false, []string{"internal/clientlink", "internal/clientsession", "internal/clock", "internal/due", "internal/hold", "internal/latelog", "internal/leases", "internal/mistake", "internal/names", "lock"}},
	{"node/internal/locks", false, []string{".", "internal/clock", "internal/epochs", "internal/leases", "internal/mail", "internal/membership", "internal/membership/carryover", "internal/message", "internal/stream", "lock", "trace"}},
	{"node/internal/group", false, []string{".", "internal/clock", "internal/due", "internal/epochs", "internal/hold", "internal/latelog", "internal/leases", "internal/mail", "internal/membership", "internal/membership/consent", "internal/membership/lease", "internal/message", "internal/names", "internal/protocol", "internal/storecall", "internal/stream", "internal/timers", "internal/wire", "lock", "node/internal/locks", "store", "trace", "transport"}},
	{"node", false, []string{".", "central", "internal/chase", "internal/clock", "internal/epochs", "internal/hold", "internal/leases", "internal/lend", "internal/mail", "internal/membership", "internal/membership/lease", "internal/names", "internal/wire", "lock", "node/internal/group", "node/internal/locks", "store", "trace", "transport"}},
	{"node/filenode", false, []string{"node", "store", "transport"}},
	{"node/kubenode", false, []string{"node", "store", "transport"}},
	{"node/natsnode", false, []string{"internal/leases", "node", "store", "transport"}},
	{"node/sqlnode", false, []string{"node", "store", "transport"}},
	{"internal/metrics", false, []string{".", "client", "node"}},

	// For tests only: nothing that ships reaches these.
	{"internal/kit/kubetest", false, nil},
	{"internal/kit/s3test", false, nil},
	{"internal/kit/quicktest", false, nil},
	{"internal/kit/racetest", false, nil},
	{"internal/kit/spectest", false, nil},
	{"internal/kit/algorithms", false, []string{".", "central", "internal/kit/quicktest", "internal/kit/racetest", "lamport", "maekawa", "ricart", "ring", "suzukikasami"}},
	{"internal/kit/certtest", false, nil},
	{"internal/kit/browsertest", false, nil},
	{"internal/kit/machinetest", false, []string{".", "dmutextest", "internal/kit/quicktest"}},
	{"internal/kit/outagetest", false, []string{".", "store", "transport"}},
	{"internal/kit/repotest", false, nil},
	{"internal/kit/nodetest", false, nil},
	{"internal/kit/viewtest", false, []string{".", "internal/canon", "internal/epochs", "internal/membership", "internal/membership/carryover", "internal/search"}},
	{"internal/kit/streamnet", false, nil},
	{"internal/kit/natsnet", false, nil},
	{"internal/kit/wrongclock", false, nil},
	{"internal/kit/stall", false, nil},
	{"internal/kit/storm", false, []string{"internal/kit/stall"}},
	{"internal/kit/servetest", false, []string{".", "client", "node", "store", "transport"}},
	{"internal/kit/world", false, []string{".", "client", "internal/kit/algorithms", "internal/kit/certtest", "internal/kit/natsnet", "internal/kit/nodetest", "internal/kit/stall", "internal/kit/storm", "internal/kit/streamnet", "internal/kit/wrongclock", "internal/membership/lease", "internal/outside", "lock", "lock/fence", "lock/semaphore", "node", "store", "store/storelock", "trace", "transport"}},
}

// What the pure rows may import of other modules, besides the internal packages of Go.
var allowed = []string{
	"cmp", "errors", "iter", "math", "math/bits", "slices", "strconv", "unicode/utf8", "unsafe",
	"github.com/vmihailenco/msgpack/v5/msgpcode", // constants
}

// rowOf returns the place in rows of a package of ours, -1 if it has none.
func rowOf(path string) int {
	rel := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	best := -1
	for i, r := range rows {
		inside := r.name == "." && rel == "" || rel == r.name || strings.HasPrefix(rel, r.name+"/")
		if inside && (best < 0 || len(r.name) > len(rows[best].name)) {
			best = i
		}
	}
	return best
}

func ours(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

// A listed is a package of ours as go list tells it.
type listed struct {
	path    string
	files   []string // with their directory
	imports []string
	deps    []string // all that it imports, also indirectly
}

var tree []listed

// packages returns the packages of the module. It lists them once, because each go list costs as much as a test.
func packages(t *testing.T) []listed {
	if tree != nil {
		return tree
	}
	for _, line := range goList(t, "-f", `{{$dir := .Dir}}{{.ImportPath}}|{{range .GoFiles}}{{$dir}}/{{.}} {{end}}|{{join .Imports " "}}|{{join .Deps " "}}`, "./...") {
		columns := strings.Split(line, "|")
		require.Len(t, columns, 4)
		p := listed{columns[0], strings.Fields(columns[1]), strings.Fields(columns[2]), strings.Fields(columns[3])}
		for i := range p.files {
			p.files[i] = filepath.FromSlash(p.files[i])
		}
		tree = append(tree, p)
	}
	return tree
}

// goList runs go list in the root of the module and returns its lines.
func goList(t *testing.T, args ...string) (lines []string) {
	// go test does not know that go list reads the whole tree, and would show a cached
	// result after a change. It knows what this process reads, but not that TestMain has changed
	// the directory, so the names must be absolute.
	root, err := os.Getwd()
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir(root, func(_ string, entry os.DirEntry, err error) error {
		if entry.Name() == ".git" && entry.IsDir() { // in a linked work tree it is a file, and SkipDir would skip all that follows
			return filepath.SkipDir
		}
		return err
	}))
	out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
	if exit, ok := err.(*exec.ExitError); ok {
		t.Fatalf("go list: %s", exit.Stderr)
	}
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// No arrow runs back up: a row imports only rows that stand before it. The table has no row without a
// package, and allows no import that no package needs.
func TestImports(t *testing.T) {
	used := make(map[string]bool) // a row, or a row and one that it imports
	for _, pkg := range packages(t) {
		path := pkg.path
		from := rowOf(path)
		if from < 0 {
			t.Errorf("%s has no row in the table", path)
			continue
		}
		used[rows[from].name] = true
		for _, other := range pkg.imports {
			to := rowOf(other)
			if !ours(other) || to == from {
				continue
			}
			if to < 0 || !slices.Contains(rows[from].may, rows[to].name) {
				t.Errorf("%s may not import %s", path, other)
				continue
			}
			used[rows[from].name+" "+rows[to].name] = true
		}
	}
	for i, row := range rows {
		if !used[row.name] {
			t.Errorf("the table has a row %s, which has no package", row.name)
		}
		for _, other := range row.may {
			if !slices.ContainsFunc(rows[:i], func(r layer) bool { return r.name == other }) {
				t.Errorf("%s imports %s, which does not stand before it in the table", row.name, other)
			}
			if !used[row.name+" "+other] {
				t.Errorf("the table lets %s import %s, which it does not", row.name, other)
			}
		}
	}
}

// Who reads one of the two view machines reads nothing of the other.
func TestModesAreApart(t *testing.T) {
	for dir, foreign := range map[string]string{
		"internal/membership/lease":   `(?i)\bstrict\b|\bconsent\b|membership\.(Prepare|Promise|Refuse|Complete)\b`,
		"internal/membership/consent": `(?i)\bleases?\b|membership\.(Cleared|Part|Moved|Past|Parting|Loan|Word)\b`,
	} {
		files, err := filepath.Glob(filepath.Join(filepath.FromSlash(dir), "*.go"))
		require.NoError(t, err)
		require.Greater(t, len(files), 10, dir)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Empty(t, regexp.MustCompile(foreign).FindString(string(text)), file)
		}
	}
}

// Who changes one of these reads at most so many lines: of it, and of all that it imports. What makes a
// distance shorter lowers its bound.
func TestReadingDistance(t *testing.T) {
	all := packages(t)
	for name, bound := range map[string]int{
		"ring": 1560, "suzukikasami": 1400, "lamport": 1500, "ricart": 1560, "central": 1720, "maekawa": 1710,
		"internal/membership/lease": 3270, "store/storelock": 2000, "client": 3500, "node": 18_720,
	} {
		lines := 0
		at := slices.IndexFunc(all, func(p listed) bool { return p.path == module+"/"+name })
		require.GreaterOrEqual(t, at, 0, name)
		for _, pkg := range all {
			if pkg.path != all[at].path && !slices.Contains(all[at].deps, pkg.path) {
				continue
			}
			for _, file := range pkg.files {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				lines += strings.Count(string(text), "\n")
			}
		}
		t.Logf("%s: %d lines", name, lines)
		require.LessOrEqual(t, lines, bound, "who changes %s reads more than before: let it import less", name)
		require.NotZero(t, lines)
	}
}

// What ships, in any module, has nothing of the kit of the tests in it.
func TestKitStaysOut(t *testing.T) {
	require.NoError(t, filepath.WalkDir(".", func(file string, d os.DirEntry, err error) error {
		file = filepath.ToSlash(file)
		if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "internal/kit/") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range f.Imports {
			if strings.HasPrefix(spec.Path.Value, `"`+module+"/internal/kit/") {
				t.Errorf("%s imports %s", file, spec.Path.Value)
			}
		}
		return nil
	}))
}

// The pure rows reach nothing that has to do with time, chance, other goroutines or the
// world, not even indirectly.
//
// LESSONS L55, L56.
func TestPureImports(t *testing.T) {
	for _, pkg := range purePackages(t) {
		for _, path := range pkg.deps {
			if !pureImport(path) {
				t.Errorf("%s reaches %s", pkg.path, path)
			}
		}
	}
	for _, path := range []string{"sync", "time", "context", "net", "os", "math/rand", "math/rand/v2", "fmt", "maps", module + "/node"} {
		require.False(t, pureImport(path), path)
	}
}

func pureImport(path string) bool {
	if ours(path) {
		row := rowOf(path)
		return row >= 0 && rows[row].pure
	}
	return slices.Contains(allowed, path) || path == "runtime" || strings.HasPrefix(path, "internal/")
}

func purePackages(t *testing.T) (pure []listed) {
	var paths []string
	for _, pkg := range packages(t) {
		if row := rowOf(pkg.path); row >= 0 && rows[row].pure {
			pure = append(pure, pkg)
			paths = append(paths, pkg.path)
		}
	}
	require.Contains(t, paths, module)
	require.Contains(t, paths, module+"/ricart")
	return pure
}

// The pure rows start no goroutine, have no channel, and range over no map.
//
// LESSONS L29.
func TestPureCode(t *testing.T) {
	pure := purePackages(t)
	list := []string{"-export", "-deps", "-f", `{{.ImportPath}} {{.Export}}`}
	for _, pkg := range pure {
		list = append(list, pkg.path)
	}
	exports := make(map[string]string)
	for _, line := range goList(t, list...) {
		if path, export, ok := strings.Cut(line, " "); ok {
			exports[path] = export
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, pkg := range pure {
		var files []*ast.File
		for _, name := range pkg.files {
			file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, file)
		}
		for _, vice := range vices(t, fset, imports, pkg.path, files) {
			t.Error(vice)
		}
	}
}

// vices finds each vice at its place.
func TestVices(t *testing.T) {
	const source = `package vices

type registry map[string]int

func f(r registry, list []int) {
	go f(nil, nil)
	c := make(chan int)
	c <- <-c
	select {}
	for range r {
	}
	for range list {
	}
	for range c {
	}
}

func g[M ~map[int]int](m M) {
	for range m {
	}
}
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "vices.go", source, parser.SkipObjectResolution)
	require.NoError(t, err)
	require.Equal(t, []string{
		"vices.go:6:2: go statement",
		"vices.go:7:12: channel",
		"vices.go:8:2: channel",
		"vices.go:8:7: channel",
		"vices.go:9:2: channel",
		"vices.go:10:2: range over a map",
		"vices.go:14:2: channel",
		"vices.go:19:2: range over a map",
	}, vices(t, fset, nil, "vices", []*ast.File{file}))
}

func vices(t *testing.T, fset *token.FileSet, imports types.Importer, pkg string, files []*ast.File) (found []string) {
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	_, err := (&types.Config{Importer: imports}).Check(pkg, fset, files, info)
	require.NoError(t, err)
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			what := ""
			switch n := n.(type) {
			case *ast.GoStmt:
				what = "go statement"
			case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
				what = "channel"
			case *ast.UnaryExpr:
				if n.Op == token.ARROW {
					what = "channel"
				}
			case *ast.RangeStmt:
				what = viceOfRange(info.TypeOf(n.X))
			}
			if what != "" {
				found = append(found, fmt.Sprintf("%v: %s", fset.Position(n.Pos()), what))
			}
			return true
		})
	}
	return found
}

func viceOfRange(over types.Type) string {
	switch over := over.Underlying().(type) {
	case *types.Map:
		return "range over a map"
	case *types.Chan:
		return "channel"
	case *types.Interface: // a type parameter: the types that it allows
		for e := range over.EmbeddedTypes() {
			if u, ok := e.Underlying().(*types.Union); ok {
				for term := range u.Terms() {
					if what := viceOfRange(term.Type()); what != "" {
						return what
					}
				}
			}
		}
	}
	return ""
}
