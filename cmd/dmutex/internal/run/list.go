package run

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// A member is a machine of the list, and over TCP where it listens.
type member struct {
	id      dmutex.NodeID
	address string
}

// UnmarshalText reads N or N=HOST:PORT.
func (m *member) UnmarshalText(text []byte) error {
	number, address, _ := strings.Cut(string(text), "=")
	id, err := strconv.ParseUint(number, 10, 64)
	if err != nil || id == 0 {
		return fmt.Errorf("%q is not a member: give a number from 1 on, and over TCP its address, as in 2=HOST:PORT", text)
	}
	*m = member{dmutex.NodeID(id), address}
	return nil
}

// members are the numbers of all machines of the list.
func (c *Cmd) members() (ids []dmutex.NodeID) {
	for _, m := range c.Member {
		ids = append(ids, m.id)
	}
	return ids
}

// checkList refuses what cannot be a group with a list.
func (c *Cmd) checkList() error {
	seen := make(map[dmutex.NodeID]bool)
	for _, m := range c.Member {
		switch {
		case m.address == "" && c.NATS == "":
			return fmt.Errorf("--member=%v: give its address, as in %v=HOST:PORT", m.id, m.id)
		case m.address != "" && c.NATS != "":
			return fmt.Errorf("--member=%v=%s: over NATS a member has no address", m.id, m.address)
		case seen[m.id]:
			return fmt.Errorf("--member=%v is given twice", m.id)
		}
		seen[m.id] = true
	}
	switch {
	case c.Lease != 0:
		return errors.New("--lease is for --store")
	case c.Advertise != "":
		return errors.New("--advertise is for --store")
	case c.Self == dmutex.None || len(c.Member) == 0:
		return errors.New("give --store=URL, or --self=N and --member for each machine of a list")
	case c.NATS != "" && tool.NATS == nil:
		return fmt.Errorf("--nats=%s: %w", c.NATS, tool.ErrNoNATS)
	case !seen[c.Self]:
		return fmt.Errorf("--self=%v is not one of the members", c.Self)
	case c.NATS != "" && c.Listen != "":
		return errors.New("--listen is for TCP, not for --nats")
	case c.NATS != "" && c.Plain:
		return errors.New("--plain is for TCP, not for --nats")
	}
	return nil
}

func (c *Cmd) connectList(log *slog.Logger) (*tool.Meeting, error) {
	if c.NATS != "" {
		return tool.NATS.Connect(c.overNATS(c.NATS, c.Prefix, log))
	}
	config := tcplink.Config{Self: c.Self, Listen: c.Listen, Peers: make(map[dmutex.NodeID]string)}
	for _, m := range c.Member {
		config.Peers[m.id] = m.address
	}
	return c.overTCP(config, log)
}
