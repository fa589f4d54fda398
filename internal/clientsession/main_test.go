package clientsession

import (
	"os"
	"testing"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

func TestMain(m *testing.M) {
	machinetest.Collect()
	os.Exit(m.Run())
}
