package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
)

// A coordinator is the bare coordinator of the tables, the smallest honest lock server over
// TCP. It has a queue for each name, and a frame for each request, grant and release. It has
// no fences, no canceling, no reconnecting and no sessions. No lock over TCP costs less.
//
// A frame to the server is the operation (1 byte), the number of the request (4),
// and the name with its length (1) in front; a grant is the number of the request.
type coordinator struct {
	mu     sync.Mutex
	queues map[string][]turn // the holder first
}

type turn struct {
	conn   net.Conn
	number [4]byte
}

const (
	opAcquire = 1
	opRelease = 2
)

func coordinate() (address string, err error) {
	return listen((&coordinator{queues: make(map[string][]turn)}).serve)
}

func (c *coordinator) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	head, name := make([]byte, 6), make([]byte, 255)
	for {
		if _, err := io.ReadFull(r, head); err != nil {
			return
		}
		name := name[:head[5]]
		if _, err := io.ReadFull(r, name); err != nil {
			return
		}
		c.mu.Lock()
		queue := c.queues[string(name)]
		switch head[0] {
		case opAcquire:
			c.queues[string(name)] = append(queue, turn{conn, [4]byte(head[1:5])})
			if len(queue) == 0 {
				_, _ = conn.Write(head[1:5]) // a client that is gone cannot be told
			}
		case opRelease:
			if queue = queue[1:]; len(queue) == 0 {
				delete(c.queues, string(name))
				break
			}
			c.queues[string(name)] = queue
			_, _ = queue[0].conn.Write(queue[0].number[:])
		}
		c.mu.Unlock()
	}
}

// A bareClient is one connection to the bare coordinator. Goroutines share it.
type bareClient struct {
	conn    net.Conn
	mu      sync.Mutex
	number  uint32
	frame   []byte
	waiting map[uint32]chan struct{}
}

func dialBare(address string) (*bareClient, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	b := &bareClient{conn: conn, waiting: make(map[uint32]chan struct{})}
	go b.read()
	return b, nil
}

func (b *bareClient) read() {
	grant := make([]byte, 4)
	for r := bufio.NewReader(b.conn); ; {
		if _, err := io.ReadFull(r, grant); err != nil {
			return
		}
		number := binary.BigEndian.Uint32(grant)
		b.mu.Lock()
		granted := b.waiting[number]
		delete(b.waiting, number)
		b.mu.Unlock()
		granted <- struct{}{}
	}
}

// say sends a frame; granted is nil for a release.
func (b *bareClient) say(op byte, name string, granted chan struct{}) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.number++
	if granted != nil {
		b.waiting[b.number] = granted
	}
	b.frame = binary.BigEndian.AppendUint32(append(b.frame[:0], op), b.number)
	b.frame = append(append(b.frame, byte(len(name))), name...)
	_, err := b.conn.Write(b.frame)
	return err
}

func (b *bareClient) acquire(_ context.Context, name string) (func() error, error) {
	granted := make(chan struct{}, 1)
	if err := b.say(opAcquire, name, granted); err != nil {
		return nil, err
	}
	<-granted
	return func() error { return b.say(opRelease, name, nil) }, nil
}
