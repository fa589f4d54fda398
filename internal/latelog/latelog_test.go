package latelog_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/latelog"
)

// A stuck handler goes on only when open is closed.
type stuck struct {
	slog.Handler
	open chan struct{}
}

func (s stuck) Enabled(ctx context.Context, level slog.Level) bool {
	<-s.open
	return s.Handler.Enabled(ctx, level)
}

// TestStuckHandler: a stuck handler delays no caller. Records that find no room are counted,
// and those that wait are written in the end.
func TestStuckHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		open := make(chan struct{})
		l := latelog.New(slog.New(stuck{slog.NewTextHandler(&text, nil), open}))
		done := make(chan struct{})
		l.Log(slog.LevelInfo, "first", slog.Int("node", 1))
		synctest.Wait() // the goroutine is stuck with it
		for i := range 300 {
			l.Log(slog.LevelInfo, fmt.Sprint("record ", i))
		}
		go func() {
			l.Close()
			close(done)
		}()
		synctest.Wait()
		require.Zero(t, text.Len())
		close(open)
		<-done
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		require.Len(t, lines, 1+1+256)
		require.Contains(t, lines[0], "msg=first node=1")
		require.Contains(t, lines[1], `level=WARN msg="records left out" count=44`)
		require.Contains(t, lines[257], `msg="record 255"`)
	})
}

// TestDisabled: records below the level of the handler behind are dropped.
func TestDisabled(t *testing.T) {
	var text bytes.Buffer
	l := latelog.New(nil, slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn})))
	l.Log(slog.LevelInfo, "quiet")
	l.Log(slog.LevelWarn, "loud")
	l.Close()
	require.Equal(t, 1, strings.Count(text.String(), "\n"))
	require.Contains(t, text.String(), "loud")
}

// TestNil: without a logger nothing is logged.
func TestNil(t *testing.T) {
	l := latelog.New(nil, nil)
	l.Log(slog.LevelError, "lost")
	l.Often(slog.LevelError, "lost")
	l.Close()
}

// TestCloseTwice: links and clients may be closed again.
func TestCloseTwice(t *testing.T) {
	l := latelog.New(slog.New(slog.DiscardHandler))
	l.Log(slog.LevelInfo, "once")
	l.Close()
	l.Close()
}

// TestUnclosed: a Log that nobody closes, such as that of a node that could not be opened, keeps no
// goroutine once its records are written. If it did, the bubble would not end.
func TestUnclosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := latelog.New(slog.New(slog.DiscardHandler))
		l.Log(slog.LevelInfo, "once")
	})
}
