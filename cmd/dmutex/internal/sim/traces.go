package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	file *os.File
	*trace.Recorder
	events int // that were recorded
}

// together is how many events are written at a time, so that the recorder loses none.
const together = 64

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
		file, err := tool.CreateTrace(dir, id)
		if err != nil {
			return nil, err
		}
		n := &nodeTrace{file: file, Recorder: trace.NewRecorder(file)}
		made.nodes[id] = n
		if err := n.Open(trace.Header{Self: id, Members: members, Algorithm: text}); err != nil {
			return nil, err
		}
	}
	return made, nil
}

func (s *traces) write(id dmutex.NodeID, e *trace.Event) {
	n := s.nodes[id]
	n.Record(e)
	if n.events++; n.events%together == 0 {
		s.err = cmp.Or(s.err, n.Flush(context.Background()))
	}
}

func (s *traces) close() error {
	for _, n := range s.nodes {
		s.err = cmp.Or(s.err, n.Flush(context.Background()), n.file.Close())
		if lost := n.Lost(); lost > 0 {
			s.err = cmp.Or(s.err, fmt.Errorf("%s: %d events are missing", n.file.Name(), lost))
		}
	}
	return s.err
}
