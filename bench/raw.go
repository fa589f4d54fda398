package main

import (
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/nats-io/nats.go"
)

// A raw wire: frames of 32 bytes to some processes that send them back.
type fanOut struct {
	conns []net.Conn
	frame []byte
}

func newFanOut(e *env, peers int) (*fanOut, error) {
	addresses, err := e.echoes(peers)
	if err != nil {
		return nil, err
	}
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

// echo listens, and sends frames of 32 bytes back with the time at which they were
// read in front.
func echo() (address string, err error) {
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
			go func() {
				frame := make([]byte, 32)
				for {
					if _, err := io.ReadFull(c, frame); err != nil {
						return
					}
					binary.BigEndian.PutUint64(frame, uint64(time.Now().UnixNano()))
					_, _ = c.Write(frame) // the reader fails with it
				}
			}()
		}
	}()
	return l.Addr().String(), nil
}

// oneWay returns how long a frame takes from the call of Write to the process that
// reads it, with the pauses of handOver between two.
func oneWay(e *env) (func(d time.Duration) (map[string]float64, error), error) {
	f, err := newFanOut(e, 1)
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

// run returns how long a round trip to all peers takes, the answers read one
// after the other.
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

// rawNATS is a request over NATS that another process answers.
func rawNATS(e *env) (func(d time.Duration) ([]float64, error), error) {
	nc, err := e.connect()
	if err != nil {
		return nil, err
	}
	if _, err := e.launch(part{Kind: partEcho, NATS: e.natsAt}); err != nil {
		return nil, err
	}
	frame := make([]byte, 32)
	return func(d time.Duration) ([]float64, error) {
		return times(d, func() error {
			_, err := nc.Request(rawSubject, frame, patience)
			return err
		})
	}, nil
}

const rawSubject = "raw"

// echoNATS answers requests on rawSubject.
func echoNATS(nc *nats.Conn) error {
	if _, err := nc.Subscribe(rawSubject, func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		return err
	}
	return nc.Flush()
}

// times repeats an operation for the given time, and returns how long each took in
// microseconds. The repetitions of a tenth of that time before are not counted.
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
