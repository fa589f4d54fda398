package sim

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"os"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/trace"
)

// traces are the traces of a simulation, as they are written.
type traces struct {
	files   []io.Closer
	buffers []*bufio.Writer
	writers map[dmutex.NodeID]*trace.Writer
	err     error
}

// errTraces marks that traces could not be written.
var errTraces = errors.New("traces")

func newTraces(dir string, a tool.Algorithm, members []dmutex.NodeID) (s *traces, err error) {
	if dir, err = tool.TraceDir(dir); err != nil {
		return nil, err
	}
	made := &traces{writers: make(map[dmutex.NodeID]*trace.Writer)}
	defer func() {
		if err != nil {
			_ = made.close()
		}
	}()
	for _, id := range members {
		text, err := trace.Describe(a.New, id, members)
		if err != nil {
			return nil, err
		}
		file, err := os.Create(tool.TraceFile(dir, id))
		if err != nil {
			return nil, err
		}
		buffer := bufio.NewWriter(file)
		made.files, made.buffers = append(made.files, file), append(made.buffers, buffer)
		if made.writers[id], err = trace.NewWriter(buffer, trace.Header{Self: id, Members: members, Algorithm: text}); err != nil {
			return nil, err
		}
	}
	return made, nil
}

func (s *traces) write(id dmutex.NodeID, e *trace.Event) {
	if s.err == nil {
		s.err = s.writers[id].Write(e)
	}
}

func (s *traces) close() error {
	for i := range s.files {
		s.err = cmp.Or(s.err, s.buffers[i].Flush(), s.files[i].Close())
	}
	return s.err
}
