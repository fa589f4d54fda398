package client

import "time"

// StepWall acts as if the wall clock had been set forward.
func (c *Client) StepWall(d time.Duration) { c.clock.StepWall(d) }

// Calls returns how many requests and holds the client keeps.
func (c *Client) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}
