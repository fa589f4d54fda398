//go:build unix

package s3

import (
	"testing"

	"github.com/dmutex/dmutex/integration/servers"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/storetest"
)

// The same as with the fake, on a server whose signatures, files and crashes are real.
func TestVersity(t *testing.T) {
	t.Run("store", func(t *testing.T) {
		v := servers.StartVersity(t)
		storetest.Run(t, func(t *testing.T, group string) store.Store { return open(t, v.Address, group) })
		storetest.RunServer(t, v.Address,
			func(t *testing.T, address, group string) store.Store { return open(t, address, group) },
			func(_ *testing.T, group string) { v.Delete(group) })
	})
	t.Run("register", func(t *testing.T) {
		v := servers.StartVersity(t)
		servers.Survives(t, v, v.Address, func(through, name string) store.Store { return open(t, through, name) })
	})
	t.Run("outage", func(t *testing.T) {
		v := servers.StartVersity(t)
		servers.Outage(t, func() store.Store { return open(t, v.Address, "group") }, v.Crash, v.Start)
	})
}
