package central

import (
	"testing"

	"github.com/dmutex/dmutex/internal/machinetest"
)

func TestScripts(t *testing.T) {
	machinetest.Scripts(t, New, "textbook", "cancel")
	machinetest.Scripts(t, At(3), "carried-over")
}
