package tool

import (
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// A Meeting is where a process meets the others of its group.
type Meeting struct {
	Link  transport.Link
	Close func() // closes the link, and the connection below it
}

// MeetOverTCP makes a link over TCP.
func MeetOverTCP(c tcplink.Config) (*Meeting, error) {
	link, err := tcplink.New(c)
	if err != nil {
		return nil, err
	}
	return &Meeting{Link: link, Close: func() { _ = link.Close() }}, nil // the node may have closed it
}
