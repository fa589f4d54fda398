package main

import (
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/nats-io/nats.go"
)

// A fanOut has connections with processes that send frames of 32 bytes back.
type fanOut struct {
	conns []net.Conn
	frame []byte
}

func newFanOut(peers int) func(e *env) (*fanOut, error) {
	return func(e *env) (*fanOut, error) {
		addresses, err := e.echoes(peers)
		if err != nil {
			return nil, err
		}
		return dial(e, addresses...)
	}
}

// newRelayed connects with a relay, which passes frames on to an echo.
func newRelayed(e *env) (*fanOut, error) {
	addresses, err := e.echoes(1)
	if err != nil {
		return nil, err
	}
	relay, err := e.launch(part{Kind: partRelay, Peers: addresses})
	if err != nil {
		return nil, err
	}
	return dial(e, relay.address)
}

func dial(e *env, addresses ...string) (*fanOut, error) {
	f := &fanOut{frame: make([]byte, 32)}
	for _, address := range addresses {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return nil, err
		}
		e.defers(func() { c.Close() })
		f.conns = append(f.conns, c)
	}
	return f, nil
}

// echo listens, and sends frames of 32 bytes back. It writes the time at which it read a frame
// into the first bytes of that frame.
func echo() (address string, err error) {
	return listen(func(c net.Conn) {
		frame := make([]byte, 32)
		for {
			if _, err := io.ReadFull(c, frame); err != nil {
				return
			}
			binary.BigEndian.PutUint64(frame, uint64(time.Now().UnixNano()))
			_, _ = c.Write(frame) // if it fails, so does the next read
		}
	})
}

// relay listens, and passes frames on to an echo, and back.
func relay(echo string) (address string, err error) {
	return listen(func(c net.Conn) {
		far, err := net.Dial("tcp", echo)
		if err != nil {
			return
		}
		defer far.Close()
		go pass(far, c)
		pass(c, far)
	})
}

func pass(from, to net.Conn) {
	frame := make([]byte, 32)
	for {
		if _, err := io.ReadFull(from, frame); err != nil {
			return
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

func listen(serve func(c net.Conn)) (address string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String(), nil
}

// oneWay measures how long a frame takes from the call of Write to the process that reads
// it. Between two frames it pauses as handOver does.
func oneWay(e *env) (func(d time.Duration) (map[string]float64, error), error) {
	f, err := newFanOut(1)(e)
	if err != nil {
		return nil, err
	}
	return func(d time.Duration) (map[string]float64, error) {
		var taken []float64
		for begin := time.Now(); time.Since(begin) < d || len(taken) == 0; {
			time.Sleep(settle)
			before := time.Now()
			if _, err := f.conns[0].Write(f.frame); err != nil {
				return nil, err
			}
			if _, err := io.ReadFull(f.conns[0], f.frame); err != nil {
				return nil, err
			}
			taken = append(taken, float64(int64(binary.BigEndian.Uint64(f.frame))-before.UnixNano())/1e3)
		}
		return map[string]float64{figHandOver: median(taken)}, nil
	}, nil
}

// run measures round trips to all peers. It reads the answers one after the
// other.
func (f *fanOut) run(d time.Duration) ([]float64, error) {
	return times(d, func() error {
		for _, c := range f.conns {
			if _, err := c.Write(f.frame); err != nil {
				return err
			}
		}
		for _, c := range f.conns {
			if _, err := io.ReadFull(c, f.frame); err != nil {
				return err
			}
		}
		return nil
	})
}

// rawNATS measures requests over NATS. Another process answers them on the last subject. If there
// are two subjects, a relay answers on the first.
func rawNATS(e *env, subjects ...string) (func(d time.Duration) ([]float64, error), error) {
	nc, err := e.connect()
	if err != nil {
		return nil, err
	}
	for i := range subjects {
		if _, err := e.launch(part{Kind: partEcho, NATS: e.natsAt, Subjects: subjects[i:min(i+2, len(subjects))]}); err != nil {
			return nil, err
		}
	}
	frame := make([]byte, 32)
	return func(d time.Duration) ([]float64, error) {
		return times(d, func() error {
			_, err := nc.Request(subjects[0], frame, patience)
			return err
		})
	}, nil
}

// echoNATS answers requests on the first subject. If there is a second one, it asks there.
func echoNATS(nc *nats.Conn, subjects []string) error {
	_, err := nc.Subscribe(subjects[0], func(m *nats.Msg) {
		data := m.Data
		if len(subjects) > 1 {
			relayed, err := nc.Request(subjects[1], data, patience)
			if err != nil {
				return // the requester times out
			}
			data = relayed.Data
		}
		_ = m.Respond(data)
	})
	if err != nil {
		return err
	}
	return nc.Flush()
}

// times repeats an operation for the given time, and returns how many microseconds each
// call took. It first warms up for a tenth of that time, which is not counted.
func times(d time.Duration, op func() error) ([]float64, error) {
	var taken []float64
	for begin := time.Now(); ; {
		before := time.Now()
		if err := op(); err != nil {
			return nil, err
		}
		after := time.Now()
		if after.Sub(begin) > d/10 {
			taken = append(taken, micros(after.Sub(before)))
		}
		if after.Sub(begin) > d+d/10 {
			return taken, nil
		}
	}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
