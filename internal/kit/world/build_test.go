package world

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A build is a program of these tests in which some sources are replaced, by the flag -overlay of go. What is replaced is
// found by its text, so a build fails where the text is not there any more.
type build struct {
	dir     string
	sources map[string][]byte // by the file that they replace
}

func newBuild(t *testing.T) *build {
	return &build{t.TempDir(), make(map[string][]byte)}
}

// source returns a file as it is in the build.
func (b *build) source(t *testing.T, file string) []byte {
	if text := b.sources[file]; text != nil {
		return text
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return text
}

// replace replaces a text, which the file has once.
func (b *build) replace(t *testing.T, file, was, is string) {
	text := b.source(t, file)
	require.Equal(t, 1, bytes.Count(text, []byte(was)), "%q in %s", was, file)
	b.sources[file] = bytes.Replace(text, []byte(was), []byte(is), 1)
}

// program compiles the tests of this package.
func (b *build) program(t *testing.T) string {
	files := make(map[string]string)
	for file, text := range b.sources {
		files[file] = filepath.Join(b.dir, fmt.Sprint(len(files), ".go"))
		require.NoError(t, os.WriteFile(files[file], text, 0o600))
	}
	text, err := json.Marshal(map[string]any{"Replace": files})
	require.NoError(t, err)
	overlay, program := filepath.Join(b.dir, "overlay.json"), filepath.Join(b.dir, "world.test")
	require.NoError(t, os.WriteFile(overlay, text, 0o600))
	out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}

// root is the directory of the module.
func root(t *testing.T) string {
	dir, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	return dir
}

// ordered makes Go's runtime take the goroutines of a bubble in the same order in each run, on one processor:
//
//   - What the runtime draws in a bubble (the case of a select, the order of timers that end at once, and the numbers of
//     math/rand/v2) comes from the time of the bubble and a count. How a map is ordered is the same in each process.
//   - No goroutine is interrupted because it has run for long. (Nor for the collection of garbage: see run.)
//   - How long a goroutine has waited for a mutex is told by the time of the bubble.
//   - Who waits for a mutex is taken to be idle as others are, so that the time of the bubble goes on while its holder sleeps.
//   - Each process has the same number.
func (b *build) ordered(t *testing.T) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	replace := func(file, was, is string) {
		b.replace(t, filepath.Join(strings.TrimSpace(string(out)), "src", filepath.FromSlash(file)), was, is)
	}
	replace("runtime/synctest.go", "type synctestBubble struct {\n", `type synctestBubble struct {
	drawn uint64
`)
	replace("runtime/synctest.go", "var bubbleGen atomic.Uint64", `//go:nosplit
func (bubble *synctestBubble) rand() uint64 {
	bubble.drawn += 0x9e3779b97f4a7c15
	x := bubble.drawn ^ uint64(bubble.now)*0xd1342543de82ef95
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

var bubbleGen atomic.Uint64`)
	replace("runtime/rand.go", "	globalRand.state.Init(*seed)\n", "	*seed = [32]byte{}\n	globalRand.state.Init(*seed)\n")
	replace("runtime/rand.go", "	c := &mp.chacha8\n", `	if bubble := getg().bubble; bubble != nil {
		return bubble.rand()
	}
	c := &mp.chacha8
`)
	replace("runtime/select.go", "cheaprandn(uint32(norder + 1))", "randn(uint32(norder + 1))")
	replace("runtime/time.go", "t.rand = cheaprand()", "t.rand = uint32(rand())")
	replace("runtime/proc.go", "const forcePreemptNS = 10 * 1000 * 1000", "const forcePreemptNS = 1 << 62")
	replace("runtime/sema.go", "func internal_sync_nanotime() int64 {\n", `func internal_sync_nanotime() int64 {
	if bubble := getg().bubble; bubble != nil {
		return bubble.now
	}
`)
	replace("runtime/runtime2.go", "	waitReasonSyncCondWait:          true,\n", `	waitReasonSyncCondWait:          true,
	waitReasonSyncMutexLock:         true,
	waitReasonSyncRWMutexRLock:      true,
	waitReasonSyncRWMutexLock:       true,
`)
	replace("os/exec.go", "return syscall.Getpid()", "return 1")
}

// shared stand for several processes of a world, so nothing stalls there.
var shared = []string{"transport/memlink", "internal/outside", "lock/fence"}

// stalled puts a call before each statement of the packages that a world links, but for those without a goroutine, a mutex
// or a clock, so that goroutines stall there: see package stall.
func (b *build) stalled(t *testing.T) {
	const module = "github.com/dmutex/dmutex/"
	out, err := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,Imports", ".").Output()
	require.NoError(t, err)
	points := 0
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var pkg struct {
			ImportPath, Dir  string
			GoFiles, Imports []string
		}
		require.NoError(t, dec.Decode(&pkg))
		name, ours := strings.CutPrefix(pkg.ImportPath, module)
		drives := slices.ContainsFunc([]string{"sync", "sync/atomic", "time", "context"}, func(s string) bool { return slices.Contains(pkg.Imports, s) })
		if !ours || !drives || strings.HasPrefix(name, "internal/kit/") || slices.Contains(shared, name) {
			continue
		}
		for _, file := range pkg.GoFiles {
			file = filepath.Join(pkg.Dir, file)
			b.sources[file] = point(t, b.source(t, file), &points)
		}
	}
	b.replace(t, filepath.Join(root(t), "internal", "kit", "stall", "stall.go"), "const Points = 0", fmt.Sprint("const Points = ", points))
}

// point puts a call before each statement. The lines stay as they are.
func point(t *testing.T, text []byte, points *int) []byte {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", text, parser.SkipObjectResolution)
	require.NoError(t, err)
	var at []int
	add := func(list []ast.Stmt) {
		for _, s := range list {
			switch s.(type) {
			case *ast.CaseClause, *ast.CommClause:
			default:
				at = append(at, set.Position(s.Pos()).Offset)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			add(n.List)
		case *ast.CaseClause:
			add(n.Body)
		case *ast.CommClause:
			add(n.Body)
		}
		return true
	})
	slices.Sort(at)
	done := set.Position(file.Name.End()).Offset
	out := append(bytes.Clone(text[:done]), `; import "github.com/dmutex/dmutex/internal/kit/stall"`...)
	for _, i := range at {
		out = append(out, text[done:i]...)
		out = fmt.Appendf(out, "stall.Here(%d); ", *points)
		done = i
		*points++
	}
	out = append(out, text[done:]...)
	if len(at) == 0 {
		return text
	}
	return out
}

// orderly is the environment in which a build with a fixed order has it. A world whose messages go around without an end
// must not take all the memory of the machine.
var orderly = []string{"GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMEMLIMIT=4GiB"}

// run runs the world with a seed, in a process of its own: what the one before has left in memory would change the order.
func run(t *testing.T, program string, seed uint64, environment ...string) (out string, err error) {
	cmd := exec.CommandContext(t.Context(), program, "-test.run", "^TestWorld$", "-test.v", "-test.timeout", "10m")
	cmd.Env = append(append(os.Environ(), fmt.Sprint("DMUTEX_SEED=", seed)), append(orderly, environment...)...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}
