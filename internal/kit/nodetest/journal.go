package nodetest

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing/synctest"
)

// Journal is what a node has logged, without the time.
type Journal struct {
	mu   sync.Mutex
	text bytes.Buffer
	Gate chan struct{} // Write waits until it is closed, unless it is nil
}

// Write takes a record.
func (j *Journal) Write(b []byte) (int, error) {
	if j.Gate != nil {
		<-j.Gate
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// Logger returns a logger that writes to the journal.
func (j *Journal) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// String returns all that was logged since the last Take.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Take returns the lines since the last Take.
func (j *Journal) Take() []string {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.text.Reset()
	return strings.Split(strings.TrimSuffix(j.text.String(), "\n"), "\n")
}
