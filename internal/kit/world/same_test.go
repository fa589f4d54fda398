package world

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/storm"
)

// A seed is one run: all that happens in two of them happens at the same times, in the same order.
func TestSame(t *testing.T) {
	skip(t)
	b := newBuild(t)
	b.ordered(t)
	b.stalled(t)
	program := b.program(t)
	for _, seed := range storm.Seeds(t, 20) {
		var notes [2][]string
		for i := range notes {
			file := filepath.Join(b.dir, "notes")
			out, err := run(t, program, seed, "DMUTEX_NOTES="+file)
			require.NoError(t, err, out)
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			notes[i] = append(strings.Split(string(text), "\n"), regexp.MustCompile(`the sum of the notes is \w+`).FindString(out))
		}
		require.Greater(t, len(notes[0]), 200)
		for i, line := range notes[0] {
			require.Less(t, i, len(notes[1]), "seed %d", seed)
			require.Equal(t, line, notes[1][i], "seed %d, line %d of the notes", seed, i)
		}
		require.Len(t, notes[1], len(notes[0]), "seed %d", seed)
	}
}

// skip skips a test that compiles Go's runtime, but for the long form.
func skip(t *testing.T) {
	if os.Getenv("DMUTEX_LONG") == "" {
		t.Skip("compiles Go's runtime: set DMUTEX_LONG=1")
	}
}
