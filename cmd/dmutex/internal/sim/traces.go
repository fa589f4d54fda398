package sim

import (
	"bufio"
	"cmp"
	"errors"
	"os"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/trace"
)

// traces are the traces of a simulation, as they are written.
type traces struct {
	nodes map[dmutex.NodeID]*nodeTrace
	err   error
}

type nodeTrace struct {
	file   *os.File
	buffer *bufio.Writer
	*trace.Writer
}

// errTraces marks that traces could not be written.
var errTraces = errors.New("traces")

func newTraces(dir string, a tool.Algorithm, members []dmutex.NodeID) (s *traces, err error) {
	if dir, err = tool.TraceDir(dir); err != nil {
		return nil, err
	}
	made := &traces{nodes: make(map[dmutex.NodeID]*nodeTrace)}
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
		n := &nodeTrace{file: file, buffer: bufio.NewWriter(file)}
		made.nodes[id] = n
		if n.Writer, err = trace.NewWriter(n.buffer, trace.Header{Self: id, Members: members, Algorithm: text}); err != nil {
			return nil, err
		}
	}
	return made, nil
}

func (s *traces) write(id dmutex.NodeID, e *trace.Event) {
	if s.err == nil {
		s.err = s.nodes[id].Write(e)
	}
}

func (s *traces) close() error {
	for _, n := range s.nodes {
		s.err = cmp.Or(s.err, n.buffer.Flush(), n.file.Close())
	}
	return s.err
}
