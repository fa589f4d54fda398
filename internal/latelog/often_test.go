package latelog_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/latelog"
)

// throttled calls f with a logger that is throttled, and with a function that returns
// what was written since it was last called.
func throttled(t *testing.T, f func(l *latelog.Log, take func() []string)) {
	synctest.Test(t, func(t *testing.T) {
		var b paper
		late := latelog.New(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
		take := func() []string {
			synctest.Wait()
			return b.take()
		}
		f(late, take)
		late.Close()
		late.Often(slog.LevelInfo, "too late")
		require.Empty(t, take())
	})
}

// A paper keeps the lines that were written.
type paper struct {
	mu    sync.Mutex
	lines []string
}

func (p *paper) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

func (p *paper) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.lines
	p.lines = nil
	return lines
}

// Equal records are written once, and then counted once a minute while they last.
func TestOftenEqual(t *testing.T) {
	throttled(t, func(l *latelog.Log, take func() []string) {
		l.Often(slog.LevelWarn, "refused", slog.String("from", "a"))
		time.Sleep(time.Second / 2)
		for range 149 {
			l.Often(slog.LevelWarn, "refused", slog.String("from", "a"))
			time.Sleep(time.Second)
		}
		require.Equal(t, []string{
			"level=WARN msg=refused from=a",
			"level=WARN msg=refused from=a again=60",
			"level=WARN msg=refused from=a again=60",
		}, take())
		l.Often(slog.LevelWarn, "refused", slog.String("from", "b"))
		l.Often(slog.LevelInfo, "refused", slog.String("from", "a"))
		require.Equal(t, []string{"level=WARN msg=refused from=b", "level=INFO msg=refused from=a"}, take())
		time.Sleep(time.Minute)
		require.Equal(t, []string{"level=WARN msg=refused from=a again=29"}, take())
		time.Sleep(time.Minute)
		require.Empty(t, take())
		l.Often(slog.LevelWarn, "refused", slog.String("from", "a"))
		require.Equal(t, []string{"level=WARN msg=refused from=a"}, take(), "it was silent for a minute")
	})
}

// Different records are limited, separately for each level.
func TestOftenDifferent(t *testing.T) {
	throttled(t, func(l *latelog.Log, take func() []string) {
		for i := range 1000 {
			l.Often(slog.LevelWarn, "refused", slog.String("reason", fmt.Sprint(i)))
		}
		l.Often(slog.LevelInfo, "refused", slog.String("reason", "x"))
		lines := take()
		require.Len(t, lines, 21)
		require.Equal(t, "level=INFO msg=refused reason=x", lines[20])
		time.Sleep(time.Minute)
		require.Equal(t, []string{`level=WARN msg="records left out" count=980 last="refused reason=999"`}, take())
		l.Often(slog.LevelWarn, "refused", slog.String("reason", "500"))
		require.Len(t, take(), 1)
		time.Sleep(time.Hour)
		require.Empty(t, take())
	})
}

// Close writes what was counted.
func TestOftenClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		late := latelog.New(slog.New(slog.NewTextHandler(&b, nil)))
		for range 3 {
			late.Often(slog.LevelInfo, "again and again")
		}
		late.Close()
		require.Equal(t, 2, strings.Count(b.String(), "\n"))
		require.Contains(t, b.String(), `msg="again and again" again=2`)
	})
}
