package world

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	replace := func(file, was, is string) {
		b.replace(t, filepath.Join(runtime.GOROOT(), "src", filepath.FromSlash(file)), was, is)
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

// run runs the world with a seed, in a process of its own: what the one before has left in memory would change the order.
func run(t *testing.T, program string, seed uint64, environment ...string) (out string, err error) {
	cmd := exec.CommandContext(t.Context(), program, "-test.run", "^TestWorld$", "-test.v", "-test.timeout", "10m")
	cmd.Env = append(os.Environ(), fmt.Sprint("DMUTEX_SEED=", seed), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "GOGC=off")
	cmd.Env = append(cmd.Env, environment...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}
