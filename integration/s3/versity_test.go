//go:build unix

package s3

import (
	"testing"
	"time"

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
		through, turn := servers.BadNetwork(t, v.Address)
		harms := []func() bool{turn}
		for range 4 {
			harms = append(harms, func() bool {
				v.Crash()
				v.Start()
				return false
			}, func() bool {
				v.Pause(300 * time.Millisecond)
				return false
			})
		}
		servers.Register(t, 20_000, func(_ int, name string) store.Store { return open(t, through, name) }, harms...)
	})
	t.Run("outage", func(t *testing.T) {
		const lease = 2 * time.Second
		v := servers.StartVersity(t)
		users := servers.NewUsers(t)
		users.OfMembers(lease, func() store.Store { return open(t, v.Address, "group") })
		users.More(10_000, "at first")
		v.Crash()
		time.Sleep(2 * lease)
		v.Start()
		users.More(1000, "after the outage")
		holds, stood := users.Stop()
		t.Logf("%d holds, none for %v", holds, stood)
	})
}
