package ring

import (
	"testing"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

func TestScripts(t *testing.T) {
	machinetest.Scripts(t, New, "parked", "late")
	machinetest.Scripts(t, Order(2, 3, 1), "cancel")
	machinetest.Scripts(t, Circulate(2), "circulating")
}
