package client

// Calls returns how many requests and holds the client keeps.
func (c *Client) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// NameOf is the name that a client has unless it is given one.
var NameOf = nameOf
