package latelog_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/latelog"
)

// TestHandler holds a Log to the contract of slog.Handler.
func TestHandler(t *testing.T) {
	var text bytes.Buffer
	slogtest.Run(t, func(t *testing.T) slog.Handler {
		text.Reset()
		l := latelog.New(slog.NewTextHandler(&text, nil))
		return written{l}
	}, func(t *testing.T) map[string]any {
		return parse(t, text.String())
	})
}

// written is a Log that writes each record at once.
type written struct{ slog.Handler }

func (w written) Handle(ctx context.Context, r slog.Record) error {
	err := w.Handler.Handle(ctx, r)
	w.Handler.(*latelog.Log).Close()
	return err
}

func (w written) WithAttrs(attrs []slog.Attr) slog.Handler {
	return written{w.Handler.WithAttrs(attrs)}
}
func (w written) WithGroup(name string) slog.Handler { return written{w.Handler.WithGroup(name)} }

// parse reads what a TextHandler has written.
func parse(t *testing.T, line string) map[string]any {
	t.Helper()
	top := make(map[string]any)
	for field := range strings.FieldsSeq(line) {
		key, value, found := strings.Cut(field, "=")
		if !found {
			continue
		}
		at := top
		path := strings.Split(key, ".")
		for _, group := range path[:len(path)-1] {
			if at[group] == nil {
				at[group] = make(map[string]any)
			}
			at = at[group].(map[string]any)
		}
		at[path[len(path)-1]] = value
	}
	return top
}

// A stuck handler goes on only when open is closed.
type stuck struct {
	slog.Handler
	open chan struct{}
}

func (s stuck) Enabled(ctx context.Context, level slog.Level) bool {
	<-s.open
	return s.Handler.Enabled(ctx, level)
}

func (s stuck) WithAttrs(attrs []slog.Attr) slog.Handler {
	return stuck{s.Handler.WithAttrs(attrs), s.open}
}

// TestStuckHandler: a stuck handler delays no caller. Records that find no room are counted,
// and those that wait are written in the end.
func TestStuckHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		open := make(chan struct{})
		l := latelog.New(stuck{slog.NewTextHandler(&text, nil), open})
		done := make(chan struct{})
		logger := slog.New(l).With("node", 1)
		logger.Info("first")
		synctest.Wait() // the goroutine is stuck with it
		for i := range 300 {
			logger.Info(fmt.Sprint("record ", i))
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
		require.Contains(t, lines[257], `msg="record 255" node=1`)
	})
}

// TestDisabled: records below the level of the handler behind are dropped.
func TestDisabled(t *testing.T) {
	var text bytes.Buffer
	l := latelog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn}))
	slog.New(l).Info("quiet")
	slog.New(l).Warn("loud")
	l.Close()
	require.Equal(t, 1, strings.Count(text.String(), "\n"))
	require.Contains(t, text.String(), "loud")
}
