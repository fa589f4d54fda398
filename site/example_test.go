package site_test

import (
	"fmt"
	"log"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/site"
)

// A hub is an algorithm of your own: the lowest member grants the lock to one request
// after the other. (Package central is such an algorithm for real use.)
type hub struct {
	site.Machine
	queue []dmutex.Stamp // at the lowest member: the request that is granted, and those that wait
}

func newHub(s dmutex.Start) (dmutex.Machine, error) {
	own, err := site.New(s)
	if err != nil {
		return nil, err
	}
	m := &hub{Machine: site.Machine{Site: own}}
	if m.lowest() == m.Self() && s.Holder != dmutex.None {
		m.queue = []dmutex.Stamp{{Clock: site.Carried, Node: s.Holder}}
	}
	return site.Complete(m), nil
}

func (m *hub) lowest() dmutex.NodeID { return m.Members()[0] }

func (m *hub) Request() ([]dmutex.Message, error) {
	fresh, err := m.Ask(dmutex.Request)
	if err != nil || !fresh {
		return nil, err
	}
	if m.lowest() == m.Self() {
		m.request(m.Stamp())
	} else {
		m.Send(dmutex.Request, m.lowest(), m.Stamp().Clock)
	}
	return m.Out(), nil
}

func (m *hub) Release() ([]dmutex.Message, error) {
	over, err := m.Leave()
	if err != nil {
		return nil, err
	}
	m.release(over)
	return m.Out(), nil
}

func (m *hub) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if _, err := m.Check(msg, m.impossible); err != nil {
		return nil, err
	}
	m.Witness(0, msg.Fence)
	switch r := about(msg); msg.Kind {
	case dmutex.Grant:
		m.enter()
	case dmutex.Request:
		m.request(r)
	case dmutex.Release:
		m.release(r)
	}
	return m.Out(), nil
}

func (m *hub) impossible(msg dmutex.Message) string {
	switch {
	case msg.Kind == dmutex.Grant && m.Pending() && msg.Attempt == m.Stamp().Clock,
		msg.Kind == dmutex.Request && m.lowest() == m.Self(),
		msg.Kind == dmutex.Release && len(m.queue) > 0 && m.queue[0] == about(msg):
		return ""
	}
	return "nobody has asked for it"
}

func about(msg dmutex.Message) dmutex.Stamp {
	return dmutex.Stamp{Clock: msg.Attempt, Node: msg.From}
}

func (m *hub) request(r dmutex.Stamp) {
	if m.queue = append(m.queue, r); len(m.queue) == 1 {
		m.grant()
	}
}

func (m *hub) grant() {
	if r := m.queue[0]; r.Node == m.Self() {
		m.enter()
	} else {
		m.Send(dmutex.Grant, r.Node, r.Clock)
	}
}

func (m *hub) enter() {
	r := m.Stamp()
	if withdrawn := m.Enter(); withdrawn {
		m.release(r)
	}
}

func (m *hub) release(r dmutex.Stamp) {
	if m.lowest() != m.Self() {
		m.Send(dmutex.Release, m.lowest(), r.Clock)
	} else if m.queue = m.queue[1:]; len(m.queue) > 0 {
		m.grant()
	}
}

// Fields is what a hub remembers. The Site makes the rest of the contract of it.
func (m *hub) Fields(f *site.Fields) string {
	f.Stamps("queue", &m.queue)
	return "hub"
}

// Lends says where the grant is, because the lowest member is not the holder.
func (m *hub) Lends() dmutex.NodeID {
	if len(m.queue) == 0 {
		return dmutex.None
	}
	return m.queue[0].Node
}

// Explore checks your own machine in every run of three nodes that request once or twice,
// and cancel. Node 2 holds the lock from before.
func Example() {
	report, err := dmutextest.Explore(dmutextest.Config{
		Algorithm: newHub, Members: dmutextest.Nodes(3), Holder: 2, Requests: []int{1, 2, 1}, Cancels: []int{1},
	})
	if err != nil {
		log.Fatal(err) // the shortest run that fails
	}
	fmt.Println("complete:", report.Complete)
	// Output: complete: true
}
