package main

import (
	"io"
	"net"
	"time"

	"github.com/nats-io/nats.go"
)

// A raw wire: frames of 32 bytes to some peers that send them back.
type fanOut struct {
	conns   []net.Conn
	answers chan error
	frame   []byte
}

func newFanOut(e *env, peers int) (*fanOut, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	f := &fanOut{answers: make(chan error, peers), frame: make([]byte, 32)}
	for range peers {
		near, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return nil, err
		}
		e.defers(func() { near.Close() })
		far, err := l.Accept()
		if err != nil {
			return nil, err
		}
		e.defers(func() { far.Close() })
		go echo(far)
		f.conns = append(f.conns, near)
	}
	return f, nil
}

// oneWay returns how long a frame takes from the call of Write to the goroutine
// that reads it, with the pauses of handOver between two.
func oneWay(e *env) (func(d time.Duration) (map[string]float64, error), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	e.defers(func() { near.Close() })
	far, err := l.Accept()
	if err != nil {
		return nil, err
	}
	e.defers(func() { far.Close() })
	arrived := make(chan time.Time)
	go func() {
		frame := make([]byte, 32)
		for {
			if _, err := io.ReadFull(far, frame); err != nil {
				close(arrived)
				return
			}
			arrived <- time.Now()
		}
	}()
	frame := make([]byte, 32)
	return func(d time.Duration) (map[string]float64, error) {
		var taken []float64
		for begin := time.Now(); time.Since(begin) < d || len(taken) == 0; {
			time.Sleep(settle)
			before := time.Now()
			if _, err := near.Write(frame); err != nil {
				return nil, err
			}
			taken = append(taken, micros((<-arrived).Sub(before)))
		}
		return map[string]float64{figHandOver: median(taken)}, nil
	}, nil
}

func echo(c net.Conn) {
	frame := make([]byte, 32)
	for {
		if _, err := io.ReadFull(c, frame); err != nil {
			return
		}
		_, _ = c.Write(frame) // the reader fails with it
	}
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

// rawNATS is a request over NATS that a second connection answers.
func rawNATS(e *env) (func(d time.Duration) ([]float64, error), error) {
	near, err := e.connect()
	if err != nil {
		return nil, err
	}
	far, err := e.connect()
	if err != nil {
		return nil, err
	}
	frame := make([]byte, 32)
	if _, err := far.Subscribe("raw", func(m *nats.Msg) { _ = m.Respond(frame) }); err != nil {
		return nil, err
	}
	if err := far.Flush(); err != nil {
		return nil, err
	}
	return func(d time.Duration) ([]float64, error) {
		return times(d, func() error {
			_, err := near.Request("raw", frame, patience)
			return err
		})
	}, nil
}

// times measures an operation again and again for that long, in microseconds.
// What a tenth more does before is not counted.
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
