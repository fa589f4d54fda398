// Package kubenode makes a pod a member of a group with nothing but Kubernetes: the record of the group is
// a Lease, and the members talk over TCP. They find each other by the record, so no Service is needed, and a Deployment
// is enough.
//
//	n, err := kubenode.Open(ctx, kubestore.Config{}, "invoices",
//		tcplink.Config{Listen: ":7000", Advertise: net.JoinHostPort(os.Getenv("POD_IP"), "7000")}, node.Config{})
//
// The service account of the pod may get, create and update leases, and POD_IP comes from status.podIP. Package
// kubestore has the Role. Anyone who reaches the port is trusted, unless the link has a TLS configuration or a
// NetworkPolicy keeps strangers out.
package kubenode

import (
	"cmp"
	"context"

	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store/kubestore"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// Open opens a node of the group of that name, which is also the name of the Lease: see [kubestore.Open]. The
// link says where this process listens, and how the others reach it; it has no Self and no Peers, because
// the record has them. Where Config.Group is empty, it is the name. See [node.Open] for the rest.
func Open(ctx context.Context, cluster kubestore.Config, group string, link tcplink.Config, cfg node.Config) (*node.Node, error) {
	record, err := kubestore.Open(ctx, cluster, group)
	if err != nil {
		return nil, err
	}
	l, err := tcplink.New(link)
	if err != nil {
		return nil, err
	}
	cfg.Group = cmp.Or(cfg.Group, group)
	return node.Open(ctx, record, l, cfg)
}
