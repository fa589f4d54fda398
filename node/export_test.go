package node

// Views returns the text of the node's view machine.
func (n *Node) Views() string {
	n.views.mu.Lock()
	defer n.views.mu.Unlock()
	b, _ := n.views.machine.AppendText(nil)
	return string(b)
}
