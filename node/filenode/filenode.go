// Package filenode makes a process a member of a group of processes on one machine, whose
// record is a file. There is nothing to install and nothing to configure:
//
//	n, err := filenode.Open(ctx, "/var/lib/invoices/members", node.Config{})
//
// The processes talk over TCP on the loopback interface, each at a free port, without TLS. So
// every user of the machine is trusted. Where that is wrong, open a [tcplink.Link] with TLS,
// and give it to [node.Open].
package filenode

import (
	"context"

	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// Open opens a node of the group whose record is the file with that path. See
// [filestore.Open] for the path, and [node.Open] for the rest. The file must be on a disk of this
// machine.
func Open(ctx context.Context, path string, cfg node.Config) (*node.Node, error) {
	record, err := filestore.Open(path)
	if err != nil {
		return nil, err
	}
	link, err := tcplink.New(tcplink.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		return nil, err
	}
	return node.Open(ctx, record, link, cfg)
}
