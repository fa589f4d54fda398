package node

import "github.com/dmutex/dmutex"

// Views returns the text of the node's view machine.
func (n *Node) Views() string {
	n.views.mu.Lock()
	defer n.views.mu.Unlock()
	b, _ := n.views.machine.AppendText(nil)
	return string(b)
}

// Taken tells the node that a peer has met another process with its number.
func (n *Node) Taken(by dmutex.NodeID) { handler{n}.Taken(by) }
