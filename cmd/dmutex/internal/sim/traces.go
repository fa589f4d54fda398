package sim

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/trace"
)

// traces are the traces of a simulation, as they are written.
type traces map[dmutex.NodeID]*nodeTrace

type nodeTrace struct {
	file *os.File
	*trace.Recorder
	events int // that were recorded
}

// together is how many events are written at a time, so that the recorder loses none.
const together = 64

// open begins the traces of the members. They must be closed, also if it fails.
func (s traces) open(dir string, a tool.Algorithm, members []dmutex.NodeID) error {
	if _, err := tool.TraceDir(dir); err != nil {
		return err
	}
	for _, id := range members {
		text, err := trace.Describe(a.New, id, members)
		if err != nil {
			return err
		}
		file, err := tool.CreateTrace(dir, id)
		if err != nil {
			return err
		}
		s[id] = &nodeTrace{file: file, Recorder: trace.NewRecorder(file)}
		if err := s[id].Open(trace.Header{Self: id, Members: members, Algorithm: text}); err != nil {
			return err
		}
	}
	return nil
}

func (s traces) write(id dmutex.NodeID, e *trace.Event) {
	n := s[id]
	n.Record(e)
	if n.events++; n.events%together == 0 {
		_ = n.Flush(context.Background()) // its error stays until close
	}
}

func (s traces) close() (err error) {
	for _, n := range s {
		err = cmp.Or(err, n.Flush(context.Background()), n.file.Close())
		if lost := n.Lost(); lost > 0 {
			err = cmp.Or(err, fmt.Errorf("%s: %d events are missing", n.file.Name(), lost))
		}
	}
	return err
}
