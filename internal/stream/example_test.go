package stream_test

import (
	"fmt"

	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/internal/stream"
)

// Two streams, driven by hand over a network that loses every third frame.
func Example() {
	cfg := stream.Config{Versions: protocol.Spoken, MaxLife: 1000, MaxFrame: 1024}
	cfg.Life = 100
	a := stream.New(cfg)
	cfg.Life = 200
	b := stream.New(cfg)

	now, frames := int64(0), 0
	carry := func(from, to *stream.Stream) {
		for {
			frame := from.Transmit(now, nil)
			if len(frame) == 0 {
				return
			}
			if frames++; frames%3 == 0 {
				continue // lost
			}
			in, err := to.Handle(now, frame)
			if err != nil {
				fmt.Println(err)
			}
			for _, m := range in.Messages {
				fmt.Printf("%s\n", m)
			}
		}
	}

	_ = a.Send([]byte("ping"))
	_ = a.Send([]byte("pong"))
	for a.Acked() < a.Sent() {
		carry(a, b)
		carry(b, a)
		now = max(now, min(a.Deadline(), b.Deadline()))
	}
	fmt.Println("met", b.Peer(), "and delivered", a.Acked())
	// Output:
	// ping
	// pong
	// met 100 and delivered 2
}
