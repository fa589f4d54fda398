package central

import (
	"testing"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

func TestScripts(t *testing.T) {
	machinetest.Scripts(t, New, "textbook", "cancel", "withdrawn")
	machinetest.Scripts(t, At(3), "carried-over", "shared")
	machinetest.Scripts(t, Witnessed, "witness")
}
