//go:build unix

package etcd

import (
	"context"
	"fmt"
	"os"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/lock/semaphore"
	"github.com/dmutex/dmutex/store/etcdstore"
	"github.com/dmutex/dmutex/store/storelock"
)

// permitArg makes this program a process that takes one of the permits once, and ends.
const (
	permitArg = "permit"
	permits   = 8
)

func permit(address, prefix string) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	number := 0
	jobs := semaphore.New(prefix, permits, func(name string) lock.Mutex {
		s, failed := etcdstore.Open(c, prefix+strconv.Itoa(number))
		number++
		l, wrong := storelock.New(s, name, 0)
		if failed != nil || wrong != nil {
			fmt.Fprintln(os.Stderr, failed, wrong)
			os.Exit(1)
		}
		return l
	})
	p, err := jobs.Acquire(context.Background())
	if err != nil {
		return err
	}
	return p.Release()
}
