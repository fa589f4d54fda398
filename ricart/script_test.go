package ricart

import (
	"testing"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

func TestScripts(t *testing.T) {
	machinetest.Scripts(t, New, "textbook", "cancel", "carried-over", "misuse")
	machinetest.Scripts(t, Carvalho, "carvalho", "carvalho-asked-back")
}
