package repotest

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/trace"
)

// Each kind of event that package trace has is recorded and can be read again, and dmutex trace says how it
// is drawn.
func TestTraceEvents(t *testing.T) {
	source, err := os.ReadFile("trace/trace.go")
	require.NoError(t, err)
	drawn, err := os.ReadFile("cmd/dmutex/internal/draw/mark.go")
	require.NoError(t, err)
	node := strings.Join(read(t, "node/internal/group/*.go", "node/internal/locks/*.go"), "")
	kinds := regexp.MustCompile(`(?m)^\t(\w+) +What = "(\w+)"`).FindAllSubmatch(source, -1)
	require.Len(t, kinds, bytes.Count(source, []byte(" What = ")))
	for _, kind := range kinds {
		named := regexp.MustCompile(`trace\.` + string(kind[1]) + `\b`)
		if what := trace.What(kind[2]); what != trace.Tick && what != trace.Lose && what != trace.Gap { // of other programs; of scripts; of the Recorder
			require.True(t, named.MatchString(node), "no node records trace.%s", kind[1])
		}
		var file bytes.Buffer
		r := trace.NewRecorder(&file)
		require.NoError(t, r.Open(trace.Header{}))
		r.Record(&trace.Event{What: trace.What(kind[2])})
		require.NoError(t, r.Flush(t.Context()))
		if _, err := trace.Read("a trace", &file); err != nil { // it has no lock, say
			require.NotContains(t, err.Error(), "is unknown", "others in trace.go does not have %s", kind[1])
		}
		require.True(t, named.Match(drawn), "draw/mark.go does not say how trace.%s is drawn", kind[1])
	}
}
